//! CustomResourceDefinitions: compiling, pruning, defaulting, validating.
