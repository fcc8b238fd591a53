//! Kubernetes protobuf, transcoded by the schema.
