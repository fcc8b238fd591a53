//! Summaries: what a StatusCollector asks about the objects of placements at all their edges, answered from changes.
//!
//! A [`Summary`] belongs to one [`Collector`]. Its rows are objects at edges; of each it keeps what the row adds to the answer, never
//! the object. Whoever feeds it sets a row when something about it changes, and asks [`Summary::told`] when somebody shall read it.

mod collector;
mod kept;
mod number;
mod row;

#[cfg(test)]
mod tests;

pub use collector::Collector;
pub use kept::Summary;
pub use row::{Input, Link, RowKey};
