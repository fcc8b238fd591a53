//! Upstream's validation of built-in kinds.
