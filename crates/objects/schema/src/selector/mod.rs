//! Label and field selectors: upstream's grammars, wordings and matching, over values and straight over JSON text.

pub mod fields;
mod labels;
mod parse;
pub mod scan;

pub use fields::FieldSelector;
pub use labels::{LabelSelector, MAX_TERMS, Operator, Requirement};
