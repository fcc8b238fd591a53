//! Server-side apply and managed fields.
