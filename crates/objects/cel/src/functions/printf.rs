//! `'%s is %d'.format([name, count])`, as version 2 of upstream's library has it: numbers are shown as in American
//! texts.

use std::fmt::Write;

use schema::go::quote;

use super::super::meter::Meter;
use super::super::value::Value;
use super::super::{Evaluated, Failure, error};
use super::standard;

/// How many digits a fraction has if nothing else is said.
const DEFAULT_PRECISION: usize = 6;
/// A double has no more digits than this; what follows would be zeros.
const MAX_PRECISION: usize = 1100;

pub fn format(pattern: &str, args: &[Value], meter: &mut Meter) -> Evaluated {
    let mut out = String::with_capacity(pattern.len());
    let mut args = args.iter().enumerate();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            out.push('%');
            rest = behind;
            continue;
        }
        let Some((_, arg)) = args.next() else {
            let index = pattern[..pattern.len() - rest.len()].matches('%').count();
            return error(format!("index {} out of range", index.saturating_sub(1)));
        };
        if rest.is_empty() {
            return error("unexpected end of string");
        }
        let (precision, behind) =
            precision(rest).or_else(|why| error(format!("could not parse formatting clause: {why}")))?;
        let Some(verb) = behind.chars().next() else { return error("unexpected end of string") };
        rest = &behind[verb.len_utf8()..];
        let before = out.len();
        clause(&mut out, verb, precision, arg, meter)?;
        meter.charge_bytes(out.len() - before)?;
    }
    out.push_str(rest);
    Ok(out.into())
}

/// `.3` before a verb.
fn precision(text: &str) -> Result<(Option<usize>, &str), String> {
    let Some(rest) = text.strip_prefix('.') else { return Ok((None, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit());
    let Some(end) = end else {
        return Err("error while parsing precision: could not find end of precision specifier".to_owned());
    };
    let digits = &rest[..end];
    let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
    let precision = digits.parse::<i64>().ok().and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
        format!(
            "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {}: \
             {why}",
            quote(digits)
        )
    })?;
    Ok((Some(precision), &rest[end..]))
}

fn clause(
    out: &mut String,
    verb: char,
    precision: Option<usize>,
    arg: &Value,
    meter: &mut Meter,
) -> Result<(), Failure> {
    let given = |why: &str| error(format!("error during formatting: {why}, was given {}", arg.type_name()));
    let hex = |bytes: &[u8]| -> String {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            let _ = if verb == 'x' { write!(text, "{byte:02x}") } else { write!(text, "{byte:02X}") };
        }
        text
    };
    let made = match (verb, arg) {
        ('s', arg) => return plain(out, arg, meter),
        ('d', Value::Int(n)) => n.to_string(),
        ('d', Value::UInt(n)) => n.to_string(),
        ('d', _) => return given("decimal clause can only be used on integers"),
        ('f' | 'e', arg) => {
            let number = match arg {
                Value::Float(f) => Some(*f),
                Value::String(text) => match &**text {
                    "NaN" => Some(f64::NAN),
                    "Infinity" => Some(f64::INFINITY),
                    "-Infinity" => Some(f64::NEG_INFINITY),
                    _ => None,
                },
                _ => None,
            };
            match (number, verb) {
                (Some(f), 'f') => fixed(f, precision.unwrap_or(DEFAULT_PRECISION)),
                // Upstream takes the precision for the least width.
                (Some(f), _) => format!("{:>1$}", scientific(f), precision.unwrap_or(0).min(MAX_PRECISION)),
                (None, 'f') => return given("fixed-point clause can only be used on doubles"),
                (None, _) => return given("scientific clause can only be used on doubles"),
            }
        }
        ('b', Value::Int(n)) => signed(*n, |n| format!("{n:b}")),
        ('b', Value::UInt(n)) => format!("{n:b}"),
        ('b', Value::Bool(flag)) => u8::from(*flag).to_string(),
        ('b', _) => return given("only integers and bools can be formatted as binary"),
        ('o', Value::Int(n)) => signed(*n, |n| format!("{n:o}")),
        ('o', Value::UInt(n)) => format!("{n:o}"),
        ('o', _) => return given("octal clause can only be used on integers"),
        ('x', Value::Int(n)) => signed(*n, |n| format!("{n:x}")),
        ('X', Value::Int(n)) => signed(*n, |n| format!("{n:X}")),
        ('x', Value::UInt(n)) => format!("{n:x}"),
        ('X', Value::UInt(n)) => format!("{n:X}"),
        ('x' | 'X', Value::String(text)) => hex(text.as_bytes()),
        ('x' | 'X', Value::Bytes(bytes)) => hex(bytes),
        ('x' | 'X', _) => return given("only integers, byte buffers, and strings can be formatted as hex"),
        _ => {
            return error(format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\""));
        }
    };
    out.push_str(&made);
    Ok(())
}

fn signed(n: i64, show: impl Fn(u64) -> String) -> String {
    format!("{}{}", if n < 0 { "-" } else { "" }, show(n.unsigned_abs()))
}

/// What `%s` shows.
fn plain(out: &mut String, value: &Value, meter: &mut Meter) -> Result<(), Failure> {
    match value {
        Value::List(_) | Value::Map(_) => return nested(out, value, meter),
        Value::Null => out.push_str("null"),
        Value::Type(name) => out.push_str(name),
        Value::Opaque(_) | Value::Optional(_) => {
            return error(format!(
                "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, \
                 maps, lists, types, durations, and timestamps, was given {}",
                value.type_name()
            ));
        }
        value => match standard::text_of(value) {
            Some(text) => out.push_str(&text),
            None => {
                return error(
                    "error during formatting: could not convert argument \"invalid UTF-8 in bytes, cannot convert to \
                     string\" to string",
                );
            }
        },
    }
    Ok(())
}

/// What `%s` shows of a value in a list or map.
fn nested(out: &mut String, value: &Value, meter: &mut Meter) -> Result<(), Failure> {
    meter.charge(1)?;
    match value {
        Value::List(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                nested(out, item, meter)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            // Entries are sorted by how their keys are shown.
            let mut entries = Vec::with_capacity(map.len());
            for (key, value) in map.iter() {
                let mut shown = String::new();
                nested(&mut shown, &key.value(), meter)?;
                let mut made = String::new();
                nested(&mut made, value, meter)?;
                entries.push((shown, made));
            }
            entries.sort();
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                let comma = if index > 0 { ", " } else { "" };
                let _ = write!(out, "{comma}{key}:{value}");
            }
            out.push('}');
        }
        Value::String(text) => {
            meter.charge_bytes(text.len())?;
            out.push_str(&quote(text));
        }
        Value::Bytes(bytes) => {
            meter.charge_bytes(bytes.len())?;
            let _ = write!(out, "b{}", quote(&String::from_utf8_lossy(bytes)));
        }
        Value::Float(f) if f.is_nan() => out.push_str("\"NaN\""),
        Value::Float(f) if f.is_infinite() => out.push_str(if *f > 0.0 { "\"+Inf\"" } else { "\"-Inf\"" }),
        Value::Float(f) => {
            let _ = write!(out, "{f:.*}", DEFAULT_PRECISION);
        }
        Value::Duration(_) | Value::Timestamp(_) => {
            let name = if matches!(value, Value::Duration(_)) { "duration" } else { "timestamp" };
            let _ = write!(out, "{name}({})", quote(&standard::text_of(value).unwrap_or_default()));
        }
        Value::Opaque(_) | Value::Optional(_) => {
            return error(format!("error during formatting: no formatting function for {}", value.type_name()));
        }
        value => plain(out, value, meter)?,
    }
    Ok(())
}

/// With so many digits behind the point, and a comma between thousands.
fn fixed(f: f64, precision: usize) -> String {
    if !f.is_finite() {
        return not_finite(f);
    }
    let text = format!("{:.*}", precision.min(MAX_PRECISION), f.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = if f.is_sign_negative() { "-".to_owned() } else { String::new() };
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

fn not_finite(f: f64) -> String {
    match (f.is_nan(), f > 0.0) {
        (true, _) => "NaN".to_owned(),
        (false, true) => "∞".to_owned(),
        (false, false) => "-∞".to_owned(),
    }
}

/// `1.052033 × 10⁰³`, with narrow spaces that do not break.
fn scientific(f: f64) -> String {
    if !f.is_finite() {
        return not_finite(f);
    }
    let text = format!("{f:.*e}", DEFAULT_PRECISION);
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { "⁻" } else { "" };
    let raised: String = format!("{:02}", exponent.abs()).chars().map(superscript).collect();
    format!("{digits}\u{202f}×\u{202f}10{sign}{raised}")
}

fn superscript(digit: char) -> char {
    match digit {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        _ => '⁰',
    }
}
