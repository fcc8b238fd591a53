//! Names and labels: what may be called how.
