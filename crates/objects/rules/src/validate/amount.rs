//! Quantities in decoded objects, for comparing.

use schema::quantity::Quantity;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amount(Quantity);

impl Amount {
    pub(crate) fn zero() -> Self {
        Self(Quantity::zero())
    }

    pub(crate) fn one() -> Self {
        Self(Quantity::from_int(1))
    }

    /// A decoded quantity; what does not parse counts as nothing, as decoding has refused it before.
    pub(crate) fn of(value: &Value) -> Self {
        let parsed = match value {
            Value::String(text) => Quantity::parse(text),
            Value::Number(number) => Quantity::parse(&number.to_string()),
            _ => return Self::zero(),
        };
        parsed.map_or_else(|_| Self::zero(), Self)
    }

    pub(crate) fn is_integer(&self) -> bool {
        self.0.milli_value() % 1000 == 0
    }

    pub(crate) fn value(&self) -> i64 {
        self.0.value()
    }

    pub(crate) fn milli(&self) -> i64 {
        self.0.milli_value()
    }

    #[allow(clippy::cast_precision_loss, reason = "ratios are told to a person, not computed with")]
    pub(crate) fn ratio(&self, to: &Self) -> f64 {
        self.milli() as f64 / to.milli() as f64
    }
}
