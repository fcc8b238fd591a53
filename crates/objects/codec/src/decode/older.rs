//! Words that mean more in YAML 1.1, which upstream reads, than in YAML 1.2.

use serde_json::Value;

/// The boolean or number that a plain word is there and not here.
pub(super) fn meaning(word: &str) -> Option<Value> {
    match word {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true.into()),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false.into()),
        _ if word.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-')) => number(word),
        _ => None,
    }
}

/// As Go reads an integer whose base it is not told, and then as a decimal fraction. `_` may stand anywhere.
fn number(word: &str) -> Option<Value> {
    let word = word.replace('_', "");
    let (sign, digits) = match word.strip_prefix(['+', '-']) {
        Some(digits) => (if word.starts_with('-') { "-" } else { "" }, digits),
        None => ("", word.as_str()),
    };
    let bases = [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2), ("0", 8)];
    let other = bases.iter().find_map(|(prefix, base)| Some((digits.strip_prefix(prefix)?, *base)));
    let (digits, base) = other.filter(|(digits, _)| !digits.is_empty()).unwrap_or((digits, 10));
    let is_integer = digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
    let signed = || i64::from_str_radix(&format!("{sign}{digits}"), base).ok().map(Value::from);
    let unsigned = || u64::from_str_radix(digits, base).ok().filter(|_| sign.is_empty()).map(Value::from);
    let integer = if is_integer { signed().or_else(unsigned) } else { None };
    integer.or_else(|| {
        let is_fraction = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
        let fraction = word.parse::<f64>().ok().filter(|fraction| is_fraction && fraction.is_finite())?;
        // Without a fraction it is written as an integer, as far as those are exact.
        if fraction.fract() == 0.0 && fraction.abs() < 1e15 {
            Some((fraction as i64).into())
        } else {
            Some(fraction.into())
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_what_upstream_reads() {
        for (word, expected) in [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("0644", json!(420)),
            ("-0644", json!(-420)),
            ("+0644", json!(420)),
            ("0b1_01", json!(5)),
            ("0X1f", json!(31)),
            ("1_000", json!(1000)),
            ("089", json!(89)),
            ("1_0.5", json!(10.5)),
            ("0_7", json!(7)),
            ("01777777777777777777777", json!(u64::MAX)),
        ] {
            assert_eq!(meaning(word), Some(expected), "{word}");
        }
        for word in [
            "",
            "yEs",
            "nO",
            "+",
            "-",
            "_1",
            "1-2",
            "0xg",
            "2001-01-01",
            "1.2.3",
            "1:30",
            "0644a",
            "inf",
            "+inf",
            "-nan",
            "--1",
        ] {
            assert_eq!(meaning(word), None, "{word}");
        }
    }
}
