//! Expressions with what they evaluate to, measured with the engine that was here before and compared with this one.
//!
//! `tests/data/recorded.jsonl` is what the former engine answered. `tests/data/corrected.jsonl` has the expressions
//! where upstream has it otherwise, with the rule.

use serde_json::json;

use super::*;

fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Optional(None) => "optional.none()".to_owned(),
        Value::Optional(Some(inner)) => format!("optional.of({})", show(inner)),
        Value::Type(name) => format!("{name:?}"),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(n) => n.to_string(),
        Value::UInt(n) => format!("{n}u"),
        Value::Float(f) => format!("{f:?}"),
        Value::String(text) => format!("{text:?}"),
        Value::Bytes(bytes) => format!("b{:?}", &bytes[..]),
        Value::List(list) => format!("[{}]", list.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let mut entries: Vec<String> =
                map.iter().map(|(k, v)| format!("{}: {}", show(&k.value()), show(v))).collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        other => match to_json(other) {
            Some(json) => format!("<{json}>"),
            None => "<opaque>".to_owned(),
        },
    }
}

fn variables() -> Vec<(&'static str, Value)> {
    let own = json!({
        "a": 1, "s": "text", "l": [1, 2, 3], "m": {"k": "v"}, "n": null, "f": 1.5, "u": 18446744073709551615u64,
        "b": true, "big": 9007199254740993i64, "neg": -5, "dash-ed": 1, "dash__dash__ed": 2,
        "ts": "2024-02-29T12:00:00Z", "when": "1h", "bytes": "aGk=",
        "obj": {"list": [{"name": "x", "n": 1}, {"name": "y", "n": 2}], "empty": {}, "none": null},
    });
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "c", "image": "reg/c:1"}]}}},
    });
    let request =
        json!({"operation": "CREATE", "namespace": "shop", "userInfo": {"username": "u", "groups": ["admin"]}});
    vec![
        ("self", from_json(&own)),
        ("oldSelf", from_json(&json!({"a": 2}))),
        ("object", from_json(&object)),
        ("oldObject", Value::Null),
        ("request", from_json(&request)),
        ("params", from_json(&json!({"max": 5}))),
        ("namespaceObject", from_json(&json!({"metadata": {"name": "shop"}}))),
        ("variables", from_json(&json!({"x": 1}))),
        ("obj", from_json(&object)),
    ]
}

fn environment() -> Environment {
    let names = variables().into_iter().map(|(name, _)| (name.to_owned(), Type::Dyn));
    Environment::new(names).with_messages()
}

fn measure(source: &str) -> (String, u64, String) {
    let ty = match Expression::compile(source, &environment()) {
        Ok((_, ty)) => ty.to_string(),
        Err(why) => why,
    };
    let Ok(expression) = Expression::parse(source) else { return ("syntax".to_owned(), 0, ty) };
    let mut budget = COST_OF_ALL;
    let outcome = match expression.evaluate(&variables(), &mut budget) {
        Ok(value) => show(&value),
        Err(why) => format!("error: {why}"),
    };
    (outcome, COST_OF_ALL - budget, ty)
}

/// An expression, what it evaluates to, what that costs, and its type or what the checker says of it.
type Measured = (String, String, u64, String);

fn read(file: &str) -> Vec<Measured> {
    let path = format!("{}/tests/data/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let measured = |line: &str| -> Option<Measured> {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let text = |at: usize| Some(line.get(at)?.as_str()?.to_owned());
        Some((text(0)?, text(1)?, line.get(2)?.as_u64()?, text(3)?))
    };
    text.lines().map(|line| measured(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn the_engine_agrees_with_what_was_measured() {
    let recorded = read("recorded.jsonl");
    // Where the former engine was wrong: what is right, and behind that the rule of upstream.
    let corrected = read("corrected.jsonl");
    let corrected: std::collections::HashMap<_, _> =
        corrected.into_iter().map(|(source, outcome, cost, ty)| (source, (outcome, cost, ty))).collect();
    let mut wrong = Vec::new();
    for (source, outcome, cost, ty) in recorded {
        let expected = corrected.get(&source).cloned().unwrap_or((outcome, cost, ty));
        let found = measure(&source);
        if found != expected {
            wrong.push(format!("{source:?}\n  expected {expected:?}\n  found    {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Measures expressions that a file lists, as JSON, to extend the corpus.
#[test]
fn record() {
    let Ok(paths) = std::env::var("CEL_RECORD") else { return };
    let (from, to) = paths.split_once(':').unwrap();
    let all: Vec<String> = serde_json::from_str(&std::fs::read_to_string(from).unwrap()).unwrap();
    let lines: Vec<String> = all
        .iter()
        .map(|source| {
            let (outcome, cost, ty) = measure(source);
            json!([source, outcome, cost, ty]).to_string()
        })
        .collect();
    std::fs::write(to, lines.join("\n") + "\n").unwrap();
}
