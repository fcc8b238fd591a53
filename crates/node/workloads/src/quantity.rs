//! Amounts of resources, as `100m`, `64Mi` or `1e3` say them.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// In thousandths, rounded up; nothing if it is no amount. What is too large to count is as much as can be counted.
pub fn milli(quantity: &Quantity) -> Option<i128> {
    let text = quantity.0.trim();
    let digits = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (base, exponent): (i128, i32) = match suffix {
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "" => (10, 0),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (1024, 1),
        "Mi" => (1024, 2),
        "Gi" => (1024, 3),
        "Ti" => (1024, 4),
        "Pi" => (1024, 5),
        "Ei" => (1024, 6),
        _ => (10, suffix.strip_prefix(['e', 'E'])?.parse().ok().filter(|exponent| (-40..=40).contains(exponent))?),
    };
    let (negative, number) = match number.as_bytes().first()? {
        b'-' => (true, &number[1..]),
        b'+' => (false, &number[1..]),
        _ => (false, number),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let all = format!("{whole}{part}");
    if all.is_empty() || all.len() > 30 || !all.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // In thousandths, and its own decimals taken away again.
    let mut value: i128 = all.parse().ok()?;
    let mut tens = 3 - i32::try_from(part.len()).ok()?;
    if base == 1024 {
        value = value.saturating_mul(base.pow(exponent.unsigned_abs()));
    } else {
        tens += exponent;
    }
    let scale = 10_i128.checked_pow(tens.unsigned_abs().min(38))?;
    let value = if tens >= 0 {
        value.saturating_mul(scale)
    } else {
        // A negative amount has no use; only what is needed is rounded up.
        value / scale + i128::from(value % scale > 0)
    };
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_upstream_reads_them() {
        for (text, expected) in [
            ("1", Some(1000)),
            ("100m", Some(100)),
            ("0.1", Some(100)),
            ("1.5", Some(1500)),
            (".5", Some(500)),
            ("5.", Some(5000)),
            ("1e3", Some(1_000_000)),
            ("1E3", Some(1_000_000)),
            ("1E", Some(10_i128.pow(21))),
            ("12e-1", Some(1200)),
            ("1Ki", Some(1_024_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("100n", Some(1)),
            ("1u", Some(1)),
            ("-1", Some(-1000)),
            ("+2", Some(2000)),
            ("0", Some(0)),
            ("9999999999999999999999Ei", Some(i128::MAX)),
            ("", None),
            ("m", None),
            ("1x", None),
            ("1.2.3", None),
            ("--1", None),
            ("1e", None),
            ("1e999", None),
        ] {
            assert_eq!(milli(&Quantity(text.into())), expected, "{text}");
        }
    }
}
