//! What an evaluation may still cost.

use super::Failure;
use super::value::Value;

/// The rest of a budget. Everything that takes time in proportion to a value is charged before it is done.
#[derive(Debug)]
pub struct Meter {
    pub left: u64,
}

impl Meter {
    pub fn charge(&mut self, cost: u64) -> Result<(), Failure> {
        if cost > self.left {
            self.left = 0;
            return Err(Failure::Cost);
        }
        self.left -= cost;
        Ok(())
    }

    /// About what it takes to look at a value once: one for each element, a tenth for each byte.
    pub fn size_of(value: &Value) -> u64 {
        match value {
            Value::String(_) | Value::Bytes(_) => value.len() as u64 / 10,
            _ => value.len() as u64,
        }
    }

    /// Charges for a text before it is made.
    pub fn charge_bytes(&mut self, bytes: usize) -> Result<(), Failure> {
        self.charge(bytes as u64 / 10)
    }
}
