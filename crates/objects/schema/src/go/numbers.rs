//! Values as Go prints them in messages.

use serde_json::{Number, Value};

/// A float as Go's `%v` writes it.
pub fn float(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs();
    if (1e-4..1e21).contains(&magnitude) {
        return format!("{value}");
    }
    let text = format!("{value:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

pub fn number(value: &Number) -> String {
    if let Some(integer) = value.as_i64() {
        return integer.to_string();
    }
    value.as_u64().map_or_else(|| float(value.as_f64().unwrap_or(f64::NAN)), |unsigned| unsigned.to_string())
}

/// A text in double quotes as Go's `%q` writes it.
pub fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Whole floats as integers, all the way down: Go has no other way to print them.
pub fn printable(value: &Value) -> Value {
    match value {
        Value::Number(n) if n.is_f64() => match n.as_f64() {
            Some(f) if f.fract() == 0.0 && f.abs() < 9e15 => Value::from(f as i64),
            _ => value.clone(),
        },
        Value::Array(list) => list.iter().map(printable).collect(),
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), printable(v))).collect(),
        _ => value.clone(),
    }
}

/// Makes whole floats integers, all the way down. JSON knows one kind of number, and Go writes `2.0` back as `2`.
pub fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(n) if n.is_f64() => {
            if let Some(whole) = n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9e15) {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_floats_become_integers_and_others_stay() {
        let mut value = json!({"a": 2.0, "b": [1e3, 1.5], "c": {"d": -0.0, "e": 1e300}});
        whole_numbers(&mut value);
        assert_eq!(value.to_string(), r#"{"a":2,"b":[1000,1.5],"c":{"d":0,"e":1e+300}}"#);
    }
}
