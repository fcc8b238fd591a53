//! JSON patch, RFC 6902, with the leniences of the library upstream uses: replacing a missing member adds it, array
//! indices may count from the end, and whatever stands before a path's first slash is passed over.

use std::borrow::Cow;

use codec::decode::{Format, parse};
use schema::go;
use schema::status::{Result, Status};
use serde_json::{Map, Value};

const MAX_OPERATIONS: usize = 10_000;

/// Copies may not add more than this: a short patch could otherwise double a document again and again.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies a JSON patch; `doc` is untouched when any operation fails, or when it would be no object any more.
pub fn json(doc: &mut Value, patch: &[u8]) -> Result<()> {
    let mut patched = doc.clone();
    json_to_any(&mut patched, patch)?;
    if !patched.is_object() {
        return Err(rejected());
    }
    *doc = patched;
    Ok(())
}

/// The same for callers that look at what comes out: a patch may replace the whole document by a list.
pub fn json_to_any(doc: &mut Value, patch: &[u8]) -> Result<()> {
    if json_tested(doc, patch)? { Ok(()) } else { Err(rejected()) }
}

/// The same, but a `test` that finds another value is no error: the answer is `false` then.
pub fn json_tested(doc: &mut Value, patch: &[u8]) -> Result<bool> {
    let operations = decode(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(Status::too_large(format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut patched = doc.clone();
    let mut copied = 0;
    for operation in operations {
        if operation.get("op").and_then(Value::as_str) != Some("test") {
            apply(&mut patched, operation, &mut copied).ok_or_else(rejected)?;
        } else if !holds(&mut patched, &operation).ok_or_else(rejected)? {
            return Ok(false);
        }
    }
    *doc = patched;
    Ok(true)
}

/// Whether the value that a `test` names is there.
fn holds(doc: &mut Value, operation: &Map<String, Value>) -> Option<bool> {
    let path = operation.get("path").and_then(Value::as_str)?;
    let wanted = operation.get("value").unwrap_or(&Value::Null);
    if path.is_empty() {
        return Some(doc == wanted);
    }
    let (parent, key) = find(doc, path)?;
    Some(get(parent, &key)?.unwrap_or(&Value::Null) == wanted)
}

/// Upstream keeps to itself which operation failed and why.
fn rejected() -> Status {
    Status::new(422, "Invalid", "the server rejected our request due to an error in our request")
        .with_causes(Vec::new())
}

fn undecodable(why: impl std::fmt::Display) -> Status {
    Status::bad_request(format!("error decoding patch: {why}"))
}

fn decode(patch: &[u8]) -> Result<Vec<Map<String, Value>>> {
    let value = parse(patch, Format::Json).map_err(|why| undecodable(why.message))?.value;
    let mismatch = |v: &Value, ty: &str| {
        undecodable(format!("json: cannot unmarshal {} into Go value of type {ty}", go::json_name(v)))
    };
    let items = match value {
        Value::Array(items) => items,
        Value::Null => Vec::new(),
        other => return Err(mismatch(&other, "[]handlers.jsonPatchOp")),
    };
    let mut operations = Vec::with_capacity(items.len());
    for item in items {
        let operation = match item {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => return Err(mismatch(&other, "handlers.jsonPatchOp")),
        };
        for key in ["op", "path", "from"] {
            if let Some(v) = operation.get(key).filter(|v| !v.is_string() && !v.is_null()) {
                return Err(undecodable(format!(
                    "json: cannot unmarshal {} into Go struct field jsonPatchOp.{key} of type string",
                    go::json_name(v)
                )));
            }
        }
        operations.push(operation);
    }
    Ok(operations)
}

fn apply(doc: &mut Value, mut operation: Map<String, Value>, copied: &mut usize) -> Option<()> {
    let value = operation.remove("value").unwrap_or(Value::Null);
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = text("path")?;
    match text("op")? {
        "add" => {
            let (parent, key) = find(doc, path)?;
            add(parent, &key, value)
        }
        "remove" => {
            let (parent, key) = find(doc, path)?;
            remove(parent, &key).map(drop)
        }
        // The whole document, which has to be one again.
        "replace" if path.is_empty() => (value.is_object() || value.is_array()).then(|| *doc = value),
        "replace" => {
            let (parent, key) = find(doc, path)?;
            replace(parent, &key, value)
        }
        "move" => {
            let (parent, key) = find(doc, text("from")?)?;
            let moved = remove(parent, &key)?;
            let (parent, key) = find(doc, path)?;
            add(parent, &key, moved)
        }
        "copy" => {
            let (parent, key) = find(doc, text("from")?)?;
            let copy = get(parent, &key)?.cloned().unwrap_or(Value::Null);
            *copied += weight(&copy);
            if *copied > MAX_COPIED_BYTES {
                return None;
            }
            let (parent, key) = find(doc, path)?;
            add(parent, &key, copy)
        }
        _ => None,
    }
}

/// The container a path points into, and the member or index there.
fn find<'d>(doc: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let (_, path) = path.split_once('/')?;
    let (parents, key) = path.rsplit_once('/').map_or((None, path), |(parents, key)| (Some(parents), key));
    let mut at = doc;
    for part in parents.into_iter().flat_map(|p| p.split('/')) {
        let part = unescape(part);
        at = match at {
            Value::Object(map) => map.get_mut(part.as_ref())?,
            Value::Array(items) => {
                let index = index(&part, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then(|| (at, unescape(key).into_owned()))
}

fn unescape(part: &str) -> Cow<'_, str> {
    if part.contains('~') { part.replace("~1", "/").replace("~0", "~").into() } else { part.into() }
}

/// An index, perhaps counted from the end. The end itself is an answer too, as it is where an `add` may go.
fn index(key: &str, len: usize) -> Option<usize> {
    let index: i64 = key.parse().ok()?;
    let len = i64::try_from(len).ok()?;
    let index = if index < 0 { index + len } else { index };
    usize::try_from(index).ok().filter(|_| index <= len)
}

/// `None`: there is no such place. `Some(None)`: the object has no such member.
fn get<'d>(parent: &'d Value, key: &str) -> Option<Option<&'d Value>> {
    match parent {
        Value::Object(map) => Some(map.get(key)),
        Value::Array(items) => items.get(index(key, items.len())?).map(Some),
        _ => None,
    }
}

fn add(parent: &mut Value, key: &str, value: Value) -> Option<()> {
    match parent {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(items) => {
            // Counted from the end, -1 is behind the last.
            let at = match key {
                "-" => items.len(),
                back if back.starts_with('-') => index(back, items.len() + 1)?,
                from_start => index(from_start, items.len())?,
            };
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn replace(parent: &mut Value, key: &str, value: Value) -> Option<()> {
    match parent {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(items) => {
            let at = index(key, items.len())?;
            *items.get_mut(at)? = value;
        }
        _ => return None,
    }
    Some(())
}

fn remove(parent: &mut Value, key: &str) -> Option<Value> {
    match parent {
        Value::Object(map) => map.remove(key),
        Value::Array(items) => index(key, items.len()).filter(|i| *i < items.len()).map(|i| items.remove(i)),
        _ => None,
    }
}

/// About as many bytes as the value has in JSON.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(s) => s.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|v| weight(v) + 1).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(k, v)| k.len() + weight(v) + 4).sum::<usize>(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(doc: &Value, patch: &Value) -> Result<Value> {
        let mut doc = doc.clone();
        json_to_any(&mut doc, patch.to_string().as_bytes()).map(|()| doc)
    }

    #[test]
    fn operations() {
        let doc = json!({"data": {"k": "1", "n": "3", "a/b": "s"}, "list": [1, 2, 3]});
        let cases = [
            (json!([{"op":"add","path":"/data/x","value":"y"}]), "/data/x", json!("y")),
            (json!([{"op":"replace","path":"/data/absent","value":"y"}]), "/data/absent", json!("y")),
            (json!([{"op":"move","from":"/data/n","path":"/data/m"}]), "/data/m", json!("3")),
            (json!([{"op":"copy","from":"/data/n","path":"/data/m"}]), "/data/n", json!("3")),
            (
                json!([{"op":"test","path":"/data/a~1b","value":"s"},{"op":"remove","path":"/data/k"}]),
                "/data/n",
                json!("3"),
            ),
            (json!([{"op":"test","path":"/data/absent","value":null}]), "/list", json!([1, 2, 3])),
            (json!([{"op":"add","path":"/list/-","value":4}]), "/list", json!([1, 2, 3, 4])),
            (json!([{"op":"add","path":"/list/3","value":4}]), "/list", json!([1, 2, 3, 4])),
            (json!([{"op":"add","path":"/list/0","value":4}]), "/list", json!([4, 1, 2, 3])),
            (json!([{"op":"add","path":"/list/-1","value":4}]), "/list", json!([1, 2, 3, 4])),
            (json!([{"op":"add","path":"/list/-2","value":4}]), "/list", json!([1, 2, 4, 3])),
            (json!([{"op":"add","path":"/list/-4","value":4}]), "/list", json!([4, 1, 2, 3])),
            (json!([{"op":"remove","path":"/list/-1"}]), "/list", json!([1, 2])),
            (json!([{"op":"replace","path":"/list/1","value":9}]), "/list", json!([1, 9, 3])),
            (
                json!([{"op":"replace","path":"","value":{"a":1}},{"op":"add","path":"/b","value":2}]),
                "",
                json!({"a":1,"b":2}),
            ),
            (json!([{"op":"test","path":"","value":doc},{"op":"replace","path":"","value":[1]}]), "", json!([1])),
        ];
        for (patch, at, want) in cases {
            let got = patched(&doc, &patch).unwrap();
            assert_eq!(got.pointer(at), Some(&want), "{patch}");
        }
    }

    #[test]
    fn operations_that_fail_change_nothing() {
        let doc = json!({"data": {"k": "1"}, "list": [1]});
        for operation in [
            json!({"op":"test","path":"/data/k","value":"2"}),
            json!({"op":"remove","path":"/data/absent"}),
            json!({"op":"remove","path":"/list/1"}),
            json!({"op":"replace","path":"/list/1","value":1}),
            json!({"op":"add","path":"/list/2","value":1}),
            json!({"op":"add","path":"/list/-3","value":1}),
            json!({"op":"add","path":"/absent/x","value":1}),
            json!({"op":"add","path":"/data/k/x","value":1}),
            json!({"op":"add","path":"","value":{}}),
            json!({"op":"replace","path":"","value":[1]}),
            json!({"op":"replace","path":"","value":"text"}),
            json!({"op":"replace","path":"","value":null}),
            json!({"op":"replace","path":""}),
            json!({"op":"test","path":"","value":{}}),
            json!({"op":"move","from":"/data/absent","path":"/data/x"}),
            json!({"op":"frob","path":"/data/k"}),
            json!({"op":"add"}),
            json!(null),
        ] {
            let mut got = doc.clone();
            let patch = json!([{"op":"add","path":"/data/before","value":"x"}, operation]).to_string();
            let error = json(&mut got, patch.as_bytes()).unwrap_err();
            assert_eq!((error.code, error.reason), (422, "Invalid"), "{patch}");
            assert_eq!(got, doc);
        }
    }

    #[test]
    fn patches_that_do_not_decode() {
        for (patch, want) in [
            (r#"{"op":"add"}"#, "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
            (r#"["x"]"#, "json: cannot unmarshal string into Go value of type handlers.jsonPatchOp"),
            (r#"[{"op":1}]"#, "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
            (r#"[{"#, "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
        ] {
            let error = json(&mut json!({}), patch.as_bytes()).unwrap_err();
            assert_eq!(error.code, 400);
            assert_eq!(error.message, format!("error decoding patch: {want}"));
        }
    }

    #[test]
    fn limits() {
        let many = vec![json!({"op":"test","path":"/a","value":1}); MAX_OPERATIONS + 1];
        assert_eq!(patched(&json!({"a": 1}), &many.into()).unwrap_err().code, 413);
        let doubling = vec![json!({"op":"copy","from":"/a","path":"/a/-"}); 100];
        assert_eq!(patched(&json!({"a": ["xxxxxxxx"]}), &doubling.into()).unwrap_err().code, 422);
    }
}
