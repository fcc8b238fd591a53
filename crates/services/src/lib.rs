//! Services on an edge without root: a user-space proxy for their addresses, and a resolver for their names.
