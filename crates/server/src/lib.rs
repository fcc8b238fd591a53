//! The Kubernetes API over HTTP.

pub mod identity;
