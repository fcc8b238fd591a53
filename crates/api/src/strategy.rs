//! What a kind does to an object before it is written: what a client may not set, generation, status.
