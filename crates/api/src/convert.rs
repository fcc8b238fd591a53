//! Between versions of a built-in kind.
