//! Numbers that are added up and taken away again without a trace.

use std::{cmp::Ordering, collections::BTreeMap};

use schema::quantity::Quantity;
use serde_json::Value;

/// In one unit.
const UNIT: i128 = 1_000_000_000;
/// So large that 64 bits hold it: ten billion of them can be added up.
const MOST: i128 = u64::MAX as i128 * UNIT;

/// Integers and quantities are exact, in billionths. Floats stay floats.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Exact(i128),
    Float(f64),
}

impl Number {
    /// What an expression came to, as a number: text is read as a quantity. `None`: there is none.
    pub fn of(value: &Value) -> Result<Option<Self>, String> {
        let exact = match value {
            Value::Null => return Ok(None),
            Value::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(integer), _) => Some(i128::from(integer) * UNIT),
                (_, Some(unsigned)) => Some(i128::from(unsigned) * UNIT),
                _ => return Ok(n.as_f64().map(Self::Float)),
            },
            Value::String(text) => Quantity::parse(text).map_err(|_| format!("{text:?} is no number"))?.nano_value(),
            other => return Err(format!("{other} is no number")),
        };
        match exact {
            Some(exact) if exact.abs() <= MOST => Ok(Some(Self::Exact(exact))),
            _ => Err(format!("{value} is too large to be added up")),
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Exact(exact) => exact as f64 / UNIT as f64,
            Self::Float(float) => float,
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Exact(exact) if exact % UNIT == 0 => match i64::try_from(exact / UNIT) {
                Ok(integer) => integer.into(),
                Err(_) => self.float().into(),
            },
            _ => whole(self.float()),
        }
    }
}

/// A float that is a whole number is shown as one.
fn whole(float: f64) -> Value {
    const EXACT: f64 = (1u64 << 53) as f64;
    if float.fract() == 0.0 && float.abs() <= EXACT { (float as i64).into() } else { float.into() }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.float().total_cmp(&other.float()).then_with(|| match (self, other) {
            (Self::Exact(a), Self::Exact(b)) => a.cmp(b),
            (Self::Exact(_), Self::Float(_)) => Ordering::Less,
            (Self::Float(_), Self::Exact(_)) => Ordering::Greater,
            (Self::Float(_), Self::Float(_)) => Ordering::Equal,
        })
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Number {}

/// How often each is there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bag(BTreeMap<Number, u64>);

impl Bag {
    fn put(&mut self, number: Number) {
        *self.0.entry(number).or_default() += 1;
    }

    fn take(&mut self, number: Number) {
        if let Some(count) = self.0.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&number);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Count,
    Sum,
    Average,
    Least,
    Greatest,
}

impl Kind {
    pub fn read(text: &str) -> Option<Self> {
        Some(match text {
            "COUNT" => Self::Count,
            "SUM" => Self::Sum,
            "AVG" => Self::Average,
            "MIN" => Self::Least,
            "MAX" => Self::Greatest,
            _ => return None,
        })
    }
}

/// One field of a group. What was put in and taken out again leaves nothing behind: sums of integers and quantities are exact, and floats
/// are added up anew, from the least to the greatest, whenever somebody looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    count: u64,
    exact: i128,
    /// All numbers for MIN and MAX, the floats for SUM and AVG.
    bag: Bag,
}

impl Tally {
    pub fn put(&mut self, kind: Kind, number: Number) {
        self.count += 1;
        match (kind, number) {
            (Kind::Count, _) => {}
            (Kind::Sum | Kind::Average, Number::Exact(exact)) => self.exact += exact,
            _ => self.bag.put(number),
        }
    }

    pub fn take(&mut self, kind: Kind, number: Number) {
        self.count -= 1;
        match (kind, number) {
            (Kind::Count, _) => {}
            (Kind::Sum | Kind::Average, Number::Exact(exact)) => self.exact -= exact,
            _ => self.bag.take(number),
        }
    }

    pub fn json(&self, kind: Kind) -> Value {
        let extreme = |found: Option<(&Number, &u64)>| found.map_or(Value::Null, |(number, _)| number.json());
        match kind {
            Kind::Count => self.count.into(),
            Kind::Sum => self.sum().json(),
            Kind::Average if self.count == 0 => Value::Null,
            Kind::Average => whole(self.sum().float() / self.count as f64),
            Kind::Least => extreme(self.bag.0.first_key_value()),
            Kind::Greatest => extreme(self.bag.0.last_key_value()),
        }
    }

    fn sum(&self) -> Number {
        if self.bag.0.is_empty() {
            return Number::Exact(self.exact);
        }
        // Neumaier's summation: what an addition rounds away is kept beside the sum.
        let (mut sum, mut lost) = (Number::Exact(self.exact).float(), 0.0f64);
        for (number, times) in &self.bag.0 {
            let next = number.float() * *times as f64;
            let total = sum + next;
            lost += if sum.abs() >= next.abs() { (sum - total) + next } else { (next - total) + sum };
            sum = total;
        }
        // Beyond what floats hold there is nothing to correct.
        Number::Float(if lost.is_finite() { sum + lost } else { sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_and_quantities_are_read() {
        for (value, shown) in [
            (json!(3), json!(3)),
            (json!(-7), json!(-7)),
            (json!(u64::MAX), json!(u64::MAX as f64)),
            (json!(2.5), json!(2.5)),
            (json!(2.0), json!(2)),
            (json!("500m"), json!(0.5)),
            (json!("1Gi"), json!(1u64 << 30)),
            (json!("1n"), json!(1e-9)),
        ] {
            assert_eq!(Number::of(&value).unwrap().unwrap().json(), shown, "{value}");
        }
        assert_eq!(Number::of(&Value::Null), Ok(None));
        for odd in [json!("lots"), json!(true), json!([]), json!({}), json!("1e40"), json!("")] {
            assert!(Number::of(&odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn taking_out_is_the_opposite_of_putting_in() {
        let number = |value: Value| Number::of(&value).unwrap().unwrap();
        for kind in [Kind::Count, Kind::Sum, Kind::Average, Kind::Least, Kind::Greatest] {
            let mut tally = Tally::default();
            tally.put(kind, number(json!(2)));
            let before = tally.clone();
            for odd in [json!(1e300), json!(0.1), json!("1Gi"), json!(-1e-300), json!(0.1)] {
                tally.put(kind, number(odd));
            }
            for odd in [json!(0.1), json!("1Gi"), json!(1e300), json!(0.1), json!(-1e-300)] {
                tally.take(kind, number(odd));
            }
            assert_eq!((&tally, tally.json(kind)), (&before, before.json(kind)), "{kind:?}");
        }
    }

    #[test]
    fn what_is_shown() {
        let tally = |kind: Kind, values: &[Value]| {
            let mut tally = Tally::default();
            values.iter().for_each(|v| tally.put(kind, Number::of(v).unwrap().unwrap()));
            tally.json(kind)
        };
        let mixed = [json!(1), json!("500m"), json!(4), json!(2.5)];
        assert_eq!(tally(Kind::Count, &mixed), json!(4));
        assert_eq!(tally(Kind::Sum, &mixed), json!(8));
        assert_eq!(tally(Kind::Average, &mixed), json!(2));
        assert_eq!(tally(Kind::Least, &mixed), json!(0.5));
        assert_eq!(tally(Kind::Greatest, &mixed), json!(4));
        assert_eq!(tally(Kind::Sum, &[json!(0.1), json!(0.2), json!(0.3)]), json!(0.6));
        assert_eq!((tally(Kind::Sum, &[]), tally(Kind::Average, &[])), (json!(0), json!(null)));
        assert_eq!(tally(Kind::Least, &[]), json!(null));
    }
}
