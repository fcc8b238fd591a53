//! Upstream's defaults for built-in kinds.
