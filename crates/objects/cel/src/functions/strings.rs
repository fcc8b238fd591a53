//! Functions of texts. Positions count characters.

use super::super::meter::Meter;
use super::super::value::Value;
use super::super::{Evaluated, Failure, error, no_overload};
use super::{printf, regex};

pub fn method(name: &str, of: &str, args: &[Value], meter: &mut Meter) -> Evaluated {
    match (name, args) {
        ("size", []) => Ok(Value::Int(of.chars().count() as i64)),
        ("contains", [Value::String(part)]) => Ok(of.contains(&**part).into()),
        ("startsWith", [Value::String(part)]) => Ok(of.starts_with(&**part).into()),
        ("endsWith", [Value::String(part)]) => Ok(of.ends_with(&**part).into()),
        ("matches", [Value::String(pattern)]) => regex::matches(of, pattern).map(Value::Bool),
        ("find", [Value::String(pattern)]) => regex::find(of, pattern),
        ("findAll", [Value::String(pattern)]) => regex::find_all(of, pattern, -1),
        ("findAll", [Value::String(pattern), Value::Int(most)]) => regex::find_all(of, pattern, *most),
        ("charAt", [Value::Int(at)]) => char_at(of, *at),
        ("indexOf", [Value::String(part)]) => Ok(index_of(of, part, 0)),
        ("indexOf", [Value::String(part), Value::Int(from)]) => offset(*from).map(|from| index_of(of, part, from)),
        ("lastIndexOf", [Value::String(part)]) => Ok(last_index_of(of, part, usize::MAX, true)),
        ("lastIndexOf", [Value::String(part), Value::Int(from)]) => {
            offset(*from).map(|from| last_index_of(of, part, from, false))
        }
        ("lowerAscii", []) => Ok(of.to_ascii_lowercase().into()),
        ("upperAscii", []) => Ok(of.to_ascii_uppercase().into()),
        ("trim", []) => Ok(of.trim().into()),
        ("reverse", []) => Ok(of.chars().rev().collect::<String>().into()),
        ("replace", [Value::String(what), Value::String(by)]) => replace(of, what, by, -1, meter),
        ("replace", [Value::String(what), Value::String(by), Value::Int(most)]) => replace(of, what, by, *most, meter),
        ("split", [Value::String(by)]) => Ok(split(of, by, -1)),
        ("split", [Value::String(by), Value::Int(most)]) => Ok(split(of, by, *most)),
        ("substring", [Value::Int(from)]) => substring(of, *from, None),
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(of, *from, Some(*to)),
        ("format", [Value::List(values)]) => printf::format(of, values, meter),
        _ => no_overload(),
    }
}

pub fn texts<'t>(items: impl Iterator<Item = &'t str>) -> Value {
    Value::list(items.map(Value::from).collect())
}

fn out_of_range(index: i64) -> Evaluated {
    error(format!("index out of range: {index}"))
}

/// The byte at which a character starts; `None` behind the end.
fn byte_at(of: &str, character: usize) -> Option<usize> {
    of.char_indices().map(|(at, _)| at).chain([of.len()]).nth(character)
}

fn char_at(of: &str, at: i64) -> Evaluated {
    let start = usize::try_from(at).ok().and_then(|at| byte_at(of, at));
    let Some(start) = start else { return out_of_range(at) };
    Ok(of[start..].chars().next().map_or_else(|| "".into(), |c| c.to_string().into()))
}

fn offset(from: i64) -> Result<usize, Failure> {
    usize::try_from(from).or_else(|_| error(format!("index out of range: {from}")))
}

fn index_of(of: &str, part: &str, from: usize) -> Value {
    let length = of.chars().count();
    if part.is_empty() {
        return Value::Int(from.min(length) as i64);
    }
    let start = if from < length { byte_at(of, from) } else { None };
    let found = start.and_then(|start| of[start..].find(part).map(|at| start + at));
    Value::Int(found.map_or(-1, |at| of[..at].chars().count() as i64))
}

/// The last place that is not behind `from`. `anywhere` says that there is no such bound.
fn last_index_of(of: &str, part: &str, from: usize, anywhere: bool) -> Value {
    let length = of.chars().count();
    if part.is_empty() {
        return Value::Int(from.min(length) as i64);
    }
    if from >= length && !anywhere {
        return Value::Int(-1);
    }
    // What is found starts at `from` at the latest, so it ends a part's length behind that.
    let end = byte_at(of, from.saturating_add(part.chars().count())).unwrap_or(of.len());
    Value::Int(of[..end].rfind(part).map_or(-1, |at| of[..at].chars().count() as i64))
}

fn replace(of: &str, what: &str, by: &str, most: i64, meter: &mut Meter) -> Evaluated {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let times = of.matches(what).take(most).count();
    meter.charge_bytes(times.saturating_mul(by.len()))?;
    Ok(of.replacen(what, by, most).into())
}

fn split(of: &str, by: &str, most: i64) -> Value {
    let most = match usize::try_from(most) {
        Ok(0) => return Value::list(Vec::new()),
        Ok(most) => most,
        Err(_) => usize::MAX,
    };
    if !by.is_empty() {
        return texts(of.splitn(most, by));
    }
    // Nothing between characters: each is a part, the last one has the rest.
    let mut parts = Vec::new();
    let mut rest = of;
    while let Some(c) = rest.chars().next() {
        let (part, behind) = rest.split_at(if parts.len() + 1 == most { rest.len() } else { c.len_utf8() });
        parts.push(part);
        rest = behind;
    }
    texts(parts.into_iter())
}

fn substring(of: &str, from: i64, to: Option<i64>) -> Evaluated {
    if let Some(to) = to.filter(|to| from > *to) {
        return error(format!("invalid substring range. start: {from}, end: {to}"));
    }
    let byte = |at: i64| usize::try_from(at).ok().and_then(|at| byte_at(of, at));
    let Some(start) = byte(from) else { return out_of_range(from) };
    match to {
        None => Ok(of[start..].into()),
        Some(to) => byte(to).map_or_else(|| out_of_range(to), |end| Ok(of[start..end].into())),
    }
}

/// `strings.quote`.
pub fn quote(of: &str) -> Value {
    let mut out = String::with_capacity(of.len() + 2);
    out.push('"');
    for c in of.chars() {
        let escaped = match c {
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            '\\' => "\\\\",
            '"' => "\\\"",
            c => {
                out.push(c);
                continue;
            }
        };
        out.push_str(escaped);
    }
    out.push('"');
    out.into()
}
