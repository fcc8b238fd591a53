//! Quantities as numbers, for comparing: what `100m`, `1Gi` and `1e3` amount to, in billionths.

use serde_json::Value;

const NANO: i128 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amount(i128);

impl Amount {
    pub(crate) const ZERO: Self = Self(0);
    pub(crate) const ONE: Self = Self(NANO);

    /// A decoded quantity; what does not parse counts as nothing, as decoding has refused it before.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::parse(text).unwrap_or(Self::ZERO),
            Value::Number(number) => Self::parse(&number.to_string()).unwrap_or(Self::ZERO),
            _ => Self::ZERO,
        }
    }

    pub(crate) fn is_integer(self) -> bool {
        self.0 % NANO == 0
    }

    /// Rounded up, as upstream's `Value`.
    pub(crate) fn value(self) -> i128 {
        self.0.div_euclid(NANO) + i128::from(self.0.rem_euclid(NANO) != 0)
    }

    pub(crate) fn milli(self) -> i128 {
        let unit = NANO / 1000;
        self.0.div_euclid(unit) + i128::from(self.0.rem_euclid(unit) != 0)
    }

    #[allow(clippy::cast_precision_loss, reason = "ratios are told to a person, not computed with")]
    pub(crate) fn ratio(self, to: Self) -> f64 {
        self.0 as f64 / to.0 as f64
    }

    fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // Digits beyond the billionth round up; more than fits saturates.
        let mut nano: i128 = 0;
        for b in whole.bytes() {
            nano = nano.checked_mul(10)?.checked_add(i128::from(b.checked_sub(b'0')?))?;
        }
        let mut digits = 0u32;
        for b in fraction.bytes().take(9) {
            nano = nano.checked_mul(10)?.checked_add(i128::from(b.checked_sub(b'0')?))?;
            digits += 1;
        }
        let scale = |power: u32| 10i128.checked_pow(power).unwrap_or(i128::MAX);
        let (up, down) = match suffix {
            "" => (1, 1),
            "n" => (1, NANO),
            "u" => (1, 1_000_000),
            "m" => (1, 1000),
            "k" => (scale(3), 1),
            "M" => (scale(6), 1),
            "G" => (scale(9), 1),
            "T" => (scale(12), 1),
            "P" => (scale(15), 1),
            "E" => (scale(18), 1),
            "Ki" => (1 << 10, 1),
            "Mi" => (1 << 20, 1),
            "Gi" => (1 << 30, 1),
            "Ti" => (1 << 40, 1),
            "Pi" => (1 << 50, 1),
            "Ei" => (1 << 60, 1),
            _ => {
                let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
                let factor = scale(power.unsigned_abs());
                if power < 0 { (1, factor) } else { (factor, 1) }
            }
        };
        let value = nano.saturating_mul(up).saturating_mul(NANO) / scale(digits) / down;
        Some(Self(if negative { -value } else { value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        let milli = |text: &str| Amount::parse(text).map(Amount::milli);
        for (text, want) in [
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            ("1.5Ki", 1_536_000),
            ("2Gi", 2_147_483_648_000),
            ("1e3", 1_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("-1", -1000),
            ("1n", 1),
        ] {
            assert_eq!(milli(text), Some(want), "{text}");
        }
        for text in ["", "x", "1x", "1e", "--1", &"9".repeat(60)] {
            assert_eq!(milli(text), None, "{text}");
        }
        assert!(Amount::parse("1Gi") > Amount::parse("1G"));
        assert!(!Amount::of(&"1.5".into()).is_integer());
    }
}
