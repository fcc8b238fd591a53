//! Nothing here: the benchmarks are in `benches/`, run by `cargo bench -p inner-loops`.
