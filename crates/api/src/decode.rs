//! From a request body to a value, as strictly as the client asks.
