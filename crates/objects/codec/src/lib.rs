//! How objects are read and written: JSON, YAML, protobuf, tables for people, and OpenAPI documents. Pure.

pub mod decode;
pub mod openapi;
pub mod proto;
pub mod table;
