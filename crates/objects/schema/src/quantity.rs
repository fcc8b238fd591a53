//! `resource.Quantity`: parsing, comparing and the canonical form, by the rules of upstream's Go type.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// An amount such as `500m`, `1Gi` or `2e3`.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// The value is `mantissa × 10^scale`; the mantissa has no trailing zeros.
    mantissa: i128,
    scale: i32,
    format: Format,
    /// The text it was read from, where upstream keeps that: it may not be quite canonical (`1.500`).
    text: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    DecimalSi,
    BinarySi,
    DecimalExponent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Nothing smaller than a nano unit is kept: what is smaller is rounded up to it.
const NANO: i32 = -9;
/// Exponents beyond this are as good as it.
const LARGEST: i32 = 1_000_000;
/// So many digits always fit a mantissa, with room to align two of them.
const MAX_DIGITS: usize = 36;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The pieces of a quantity's text.
struct Pieces<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl Quantity {
    pub fn zero() -> Self {
        Self { mantissa: 0, scale: 0, format: Format::DecimalSi, text: None }
    }

    /// A plain number.
    pub fn from_int(value: i64) -> Self {
        Self { mantissa: value.into(), ..Self::zero() }.normalised()
    }

    pub fn from_milli(value: i64) -> Self {
        Self { mantissa: value.into(), scale: -3, ..Self::zero() }.normalised()
    }

    /// The quantity that a decoded JSON value says; `None` if it says none.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text).ok(),
            Value::Number(number) => Self::parse(&number.to_string()).ok(),
            _ => None,
        }
    }

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let pieces = split(text)?;
        let (format, exponent) = interpret(pieces.suffix).ok_or(QuantityError::Suffix)?;
        let digits = pieces.whole.len() + pieces.fraction.len();
        if digits == 0 && !text.contains('0') {
            return Err(QuantityError::Numeric);
        }
        // Digits beyond what fits only say how large the number is.
        let kept: String = pieces.whole.chars().chain(pieces.fraction.chars()).take(MAX_DIGITS).collect();
        let dropped = digits.saturating_sub(MAX_DIGITS);
        let mut mantissa: i128 = if kept.is_empty() { 0 } else { kept.parse().map_err(|_| QuantityError::Numeric)? };
        let fraction = i32::try_from(pieces.fraction.len()).unwrap_or(i32::MAX);
        let mut scale = i32::try_from(dropped).unwrap_or(i32::MAX).saturating_sub(fraction);
        match format {
            Format::BinarySi => mantissa = binary_product(mantissa, exponent, &mut scale),
            _ => scale = scale.saturating_add(exponent),
        }
        if pieces.negative {
            mantissa = -mantissa;
        }
        let mut quantity = Self { mantissa, scale, format, text: None }.rounded(NANO).normalised();
        if format == Format::BinarySi {
            quantity.tame_binary();
        }
        if keeps_text(&pieces, format, exponent) {
            quantity.text = Some(text.into());
        }
        Ok(quantity)
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// Rounded up, away from zero; as far as 64 bits go.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// In thousandths, rounded up; as far as 64 bits go.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(-3)
    }

    /// In billionths, exactly: nothing smaller is ever kept. `None` if that is more than 128 bits hold.
    pub fn nano_value(&self) -> Option<i128> {
        aligned(self.mantissa, self.scale, NANO)
    }

    /// The value, if it is a whole number of 64 bits.
    pub fn as_int(&self) -> Option<i64> {
        aligned(self.mantissa, self.scale, 0).and_then(|value| i64::try_from(value).ok())
    }

    /// The nearest double, or one next to it.
    pub fn approximate(&self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.scale)
    }

    fn scaled_value(&self, scale: i32) -> i64 {
        let rounded = self.clone().rounded(scale);
        let shift = u32::try_from(rounded.scale.saturating_sub(scale)).unwrap_or(0);
        let value = 10i128.checked_pow(shift).and_then(|p| rounded.mantissa.checked_mul(p));
        let limit = if self.is_negative() { i64::MIN } else { i64::MAX };
        value.and_then(|v| i64::try_from(v).ok()).unwrap_or(limit)
    }

    /// Rounds up to a power of ten, `-3` for thousandths, as upstream does for resource lists.
    pub fn round_up(&mut self, scale: i32) {
        if self.scale < scale {
            *self = Self { text: None, ..self.clone() }.rounded(scale).normalised();
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.accumulate(other.mantissa, other);
    }

    pub fn sub(&mut self, other: &Self) {
        self.accumulate(-other.mantissa, other);
    }

    fn accumulate(&mut self, mantissa: i128, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        let scale = self.scale.min(other.scale);
        let sum = aligned(self.mantissa, self.scale, scale)
            .zip(aligned(mantissa, other.scale, scale))
            .and_then(|(a, b)| a.checked_add(b));
        match sum {
            Some(sum) => (self.mantissa, self.scale) = (sum, scale),
            // So far apart that the smaller one does not count.
            None if other.magnitude() > self.magnitude() => (self.mantissa, self.scale) = (mantissa, other.scale),
            None => {}
        }
        *self = Self { text: None, ..self.clone() }.normalised();
    }

    /// The place of the first digit, as a power of ten.
    fn magnitude(&self) -> i64 {
        match self.mantissa.unsigned_abs().checked_ilog10() {
            Some(digits) => i64::from(digits) + i64::from(self.scale),
            None => i64::MIN,
        }
    }

    fn normalised(mut self) -> Self {
        if self.mantissa == 0 {
            self.scale = 0;
        }
        while self.mantissa != 0 && self.mantissa % 10 == 0 {
            self.mantissa /= 10;
            self.scale = self.scale.saturating_add(1);
        }
        self
    }

    /// Nothing below `scale` remains; what was there is rounded away from zero.
    fn rounded(mut self, scale: i32) -> Self {
        if self.scale >= scale {
            return self;
        }
        let places = scale.saturating_sub(self.scale).unsigned_abs();
        self.mantissa = match 10i128.checked_pow(places) {
            Some(power) => {
                let up = if self.mantissa % power == 0 { 0 } else { self.mantissa.signum() };
                self.mantissa / power + up
            }
            None => self.mantissa.signum(),
        };
        self.scale = scale;
        self
    }

    /// Binary amounts end at 2^63-1, and fractions of one are shown as decimals.
    fn tame_binary(&mut self) {
        let limit = Self::from_int(i64::MAX);
        let negative = self.is_negative();
        let size = Self { mantissa: self.mantissa.abs(), text: None, ..self.clone() };
        if size > limit {
            self.mantissa = if negative { -limit.mantissa } else { limit.mantissa };
            self.scale = limit.scale;
        }
        if !size.is_zero() && size < Self::from_int(1) {
            self.format = Format::DecimalSi;
        }
    }

    /// The whole number this is, if it is one of at most 128 bits.
    fn integer(&self) -> Option<i128> {
        if self.scale < 0 { None } else { aligned(self.mantissa, self.scale, 0) }
    }

    fn write_binary(&self, f: &mut fmt::Formatter<'_>) -> Option<fmt::Result> {
        let mut number = self.integer().filter(|n| n.abs() >= 1024)?;
        let mut times = 0;
        while number % 1024 == 0 && times < BINARY.len() {
            number /= 1024;
            times += 1;
        }
        let suffix = if times == 0 { "" } else { BINARY[times - 1] };
        Some(write!(f, "{number}{suffix}"))
    }

    fn write_decimal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Beyond the suffixes an exponent says it shorter.
        let si = self.format != Format::DecimalExponent && self.scale < 48;
        let wanted = self.scale.div_euclid(3).saturating_mul(3);
        let exponent = if si { wanted.clamp(-9, 18) } else { wanted.min(LARGEST / 3 * 3) };
        let zeros = usize::try_from(self.scale.saturating_sub(exponent)).unwrap_or(0).min(64);
        write!(f, "{}{:0<zeros$}", self.mantissa, "")?;
        match DECIMAL.iter().find(|(_, e)| *e == exponent) {
            Some((suffix, _)) if si => f.write_str(suffix),
            _ if exponent == 0 => Ok(()),
            _ => write!(f, "e{exponent}"),
        }
    }
}

impl fmt::Display for Quantity {
    /// The canonical form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && let Some(done) = self.write_binary(f)
        {
            return done;
        }
        self.write_decimal(f)
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.mantissa == 0 {
            return signs;
        }
        let sizes = self.magnitude().cmp(&other.magnitude()).then_with(|| {
            // Of one magnitude, so both fit at the smaller scale.
            let scale = self.scale.min(other.scale);
            let size = |q: &Self| aligned(q.mantissa.abs(), q.scale, scale).unwrap_or(i128::MAX);
            size(self).cmp(&size(other))
        });
        if self.mantissa < 0 { sizes.reverse() } else { sizes }
    }
}

/// The canonical form of a quantity's text.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    Quantity::parse(text).map(|q| q.to_string())
}

/// The mantissa that means the same at another, smaller scale.
fn aligned(mantissa: i128, from: i32, to: i32) -> Option<i128> {
    if mantissa == 0 {
        return Some(0);
    }
    let shift = u32::try_from(i64::from(from) - i64::from(to)).ok()?;
    10i128.checked_pow(shift)?.checked_mul(mantissa)
}

/// `mantissa × 2^exponent`; digits that do not fit move into the scale.
fn binary_product(mut mantissa: i128, exponent: i32, scale: &mut i32) -> i128 {
    for _ in 0..exponent {
        while mantissa > i128::MAX / 4 {
            mantissa /= 10;
            *scale = scale.saturating_add(1);
        }
        mantissa *= 2;
    }
    // Leaves room to align it with another.
    while mantissa.unsigned_abs().checked_ilog10().is_some_and(|d| d as usize >= MAX_DIGITS) {
        mantissa /= 10;
        *scale = scale.saturating_add(1);
    }
    mantissa
}

fn split(text: &str) -> Result<Pieces<'_>, QuantityError> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let rest = rest.trim_start_matches('0');
    let (whole, rest) = take_digits(rest);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => take_digits(rest),
        None => ("", rest),
    };
    let tail = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let tail = tail.strip_prefix(['-', '+']).unwrap_or(tail);
    if !tail.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    Ok(Pieces { negative, whole, fraction, suffix })
}

fn take_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn interpret(suffix: &str) -> Option<(Format, i32)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((Format::DecimalSi, *exponent));
    }
    if let Some(power) = (10..).step_by(10).zip(BINARY).find_map(|(power, s)| (s == suffix).then_some(power)) {
        return Some((Format::BinarySi, power));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    // Far beyond any use, and far from overflowing a scale.
    let exponent = exponent.parse::<i64>().ok()?.clamp((-LARGEST).into(), LARGEST.into());
    Some((Format::DecimalExponent, i32::try_from(exponent).ok()?))
}

/// Upstream keeps the text when a quick look says that it is canonical already.
fn keeps_text(pieces: &Pieces<'_>, format: Format, exponent: i32) -> bool {
    let whole = if pieces.whole.is_empty() { "0" } else { pieces.whole };
    let digits = whole.len() + pieces.fraction.len();
    match format {
        Format::BinarySi => {
            let room = 15 - i32::try_from(whole.len()).unwrap_or(i32::MAX) - exponent * 3 / 10 - 1;
            let value = whole.parse::<i64>().ok().filter(|v| v.checked_shl(exponent.unsigned_abs()).is_some());
            pieces.fraction.is_empty() && room >= 0 && value.is_some_and(|v| v & 7 != 0)
        }
        _ => {
            let scale = exponent - i32::try_from(pieces.fraction.len()).unwrap_or(1);
            let ends_in_zeros = format!("{whole}{}", pieces.fraction).ends_with("000");
            digits <= 18 && scale >= NANO && scale % 3 == 0 && !ends_in_zeros && !whole.starts_with('0')
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn canonical_forms() {
        for (text, want) in [
            ("0", "0"),
            ("00", "0"),
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.", "1."),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("1536Mi", "1536Mi"),
            ("100Mi", "100Mi"),
            ("1Ki", "1Ki"),
            ("1023", "1023"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1e5", "100e3"),
            ("100e3854775808", "1000e999999"),
            ("1000e999999", "1000e999999"),
            ("12e-3", "12e-3"),
            ("1000000", "1M"),
            ("1500k", "1500k"),
            ("2000M", "2G"),
            ("1E", "1E"),
            ("0.1n", "1n"),
            ("-0.1n", "-1n"),
            ("-1500m", "-1500m"),
            ("+5", "+5"),
            ("1.500", "1.500"),
            ("100Ei", "9223372036854775807"),
            ("0.0001Ki", "102400u"),
            ("1000E", "1000E"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn refusals() {
        for (text, want) in [
            ("", QuantityError::Format),
            ("lots", QuantityError::Format),
            ("1 ", QuantityError::Format),
            ("1Kib", QuantityError::Format),
            ("1KK", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            (".", QuantityError::Numeric),
            ("-", QuantityError::Numeric),
            ("1é", QuantityError::Format),
        ] {
            assert_eq!(Quantity::parse(text).map(|q| q.to_string()), Err(want), "{text}");
        }
    }

    #[test]
    fn values_round_up() {
        for (text, value, milli) in [
            ("1500m", 2, 1500),
            ("1n", 1, 1),
            ("-1500m", -2, -1500),
            ("1Gi", 1 << 30, 1000 << 30),
            ("1e40", i64::MAX, i64::MAX),
            ("-1e40", i64::MIN, i64::MIN),
        ] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!((quantity.value(), quantity.milli_value()), (value, milli), "{text}");
        }
        for (text, nano) in
            [("1500m", Some(1_500_000_000)), ("3n", Some(3)), ("-1Ki", Some(-1_024_000_000_000)), ("1e40", None)]
        {
            assert_eq!(Quantity::parse(text).unwrap().nano_value(), nano, "{text}");
        }
    }

    #[test]
    fn sums_keep_the_format() {
        let mut sum = Quantity::parse("1Gi").unwrap();
        sum.add(&Quantity::parse("512Mi").unwrap());
        assert_eq!(sum.to_string(), "1536Mi");
        let mut sum = Quantity::zero();
        sum.add(&Quantity::parse("512Mi").unwrap());
        assert_eq!(sum.to_string(), "512Mi");
        sum.sub(&Quantity::parse("1e900").unwrap());
        assert_eq!(sum.to_string(), "-1e900");
        let mut rounded = Quantity::parse("1234567n").unwrap();
        rounded.round_up(-3);
        assert_eq!(rounded.to_string(), "2m");
    }

    proptest! {
        #[test]
        fn canonical_is_stable(text in "[+-]?[0-9]{0,20}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]{1,3}|e-[0-9]{1,2})?") {
            if let Ok(quantity) = Quantity::parse(&text) {
                let once = quantity.to_string();
                let again = Quantity::parse(&once).unwrap();
                prop_assert_eq!(&again, &quantity);
                prop_assert_eq!(again.to_string(), once);
            }
        }

        #[test]
        fn arithmetic_is_that_of_integers(a in -1_000_000i64..1_000_000, b in -1_000_000i64..1_000_000) {
            let (x, y) = (Quantity::from_milli(a), Quantity::from_milli(b));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            let mut sum = x.clone();
            sum.add(&y);
            prop_assert_eq!(sum.milli_value(), a + b);
            sum.sub(&y);
            prop_assert_eq!(sum, x);
        }

        #[test]
        fn no_text_panics(text in ".*", more in "[0-9.eEinumkKMGTP+-]{0,60}") {
            let _ = canonical(&text);
            let _ = canonical(&more).map(|c| Quantity::parse(&c).map(|q| (q.value(), q.milli_value())));
        }
    }
}
