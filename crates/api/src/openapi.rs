//! OpenAPI v2 and v3 documents, made from the schema and the catalogue.
