//! May a schema take the place of another while objects of the old one exist? Pure.

use serde_json::{Map, Value};

/// Schemas are nested no deeper than this; what lies deeper counts as changed.
const DEEPEST: usize = 64;
/// So much is told of what does not fit.
const MOST: usize = 8;

/// What an old object, or a client that knows the old schema, would trip over. Both are `spec`s of APIResourceSchemas.
pub fn incompatible(old: &Value, new: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for field in ["group", "scope"] {
        if old[field] != new[field] {
            problems.push(format!("{field} changed from {} to {}", old[field], new[field]));
        }
    }
    for field in ["plural", "kind"] {
        if old["names"][field] != new["names"][field] {
            problems.push(format!("names.{field} changed from {} to {}", old["names"][field], new["names"][field]));
        }
    }
    for version in old["versions"].as_array().into_iter().flatten() {
        let name = version["name"].as_str().unwrap_or_default();
        let next = new["versions"].as_array().into_iter().flatten().find(|v| v["name"] == version["name"]);
        let Some(next) = next else {
            problems.push(format!("version {name} is gone"));
            continue;
        };
        if version["served"] == true && next["served"] != true {
            problems.push(format!("version {name} is no longer served"));
        }
        node(&version["schema"], &next["schema"], name, 0, &mut problems);
    }
    problems.truncate(MOST);
    problems
}

fn node(old: &Value, new: &Value, path: &str, depth: usize, problems: &mut Vec<String>) {
    if old == new || problems.len() >= MOST {
        return;
    }
    if depth > DEEPEST {
        problems.push(format!("{path}: nested too deeply to be compared"));
        return;
    }
    let widened = old["type"] == "integer" && new["type"] == "number";
    if old["type"] != new["type"] && !widened {
        problems.push(format!("{path}: type changed from {} to {}", old["type"], new["type"]));
        return;
    }
    flags(old, new, path, problems);
    limits(old, new, path, problems);
    let empty = Map::new();
    let properties = |schema: &'_ Value| schema["properties"].as_object().cloned().unwrap_or_default();
    let (before, after) = (properties(old), properties(new));
    for (name, schema) in &before {
        match after.get(name) {
            Some(next) => node(schema, next, &format!("{path}.{name}"), depth + 1, problems),
            None if new["x-kubernetes-preserve-unknown-fields"] == true || new["additionalProperties"] == true => {}
            None => problems.push(format!("{path}.{name}: removed")),
        }
    }
    let required = |schema: &Value, name: &Value| schema["required"].as_array().is_some_and(|all| all.contains(name));
    for name in new["required"].as_array().into_iter().flatten() {
        let has_default = new["properties"][name.as_str().unwrap_or_default()].get("default").is_some();
        if !required(old, name) && !has_default {
            problems.push(format!("{path}.{}: is now required", name.as_str().unwrap_or_default()));
        }
    }
    for field in ["items", "additionalProperties"] {
        if old[field].as_object().unwrap_or(&empty) != new[field].as_object().unwrap_or(&empty) {
            match (old[field].is_object(), new[field].is_object()) {
                (true, true) => node(&old[field], &new[field], &format!("{path}[*]"), depth + 1, problems),
                (true, false) if new[field] == true => {}
                _ => problems.push(format!("{path}: {field} changed")),
            }
        }
    }
}

fn flags(old: &Value, new: &Value, path: &str, problems: &mut Vec<String>) {
    for flag in ["nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"] {
        if old[flag] == true && new[flag] != true {
            problems.push(format!("{path}: {flag} is no longer set"));
        }
    }
    if let Some(allowed) = new["enum"].as_array() {
        match old["enum"].as_array() {
            None => problems.push(format!("{path}: only some values are allowed now")),
            Some(before) => {
                for value in before.iter().filter(|value| !allowed.contains(value)) {
                    problems.push(format!("{path}: {value} is no longer allowed"));
                }
            }
        }
    }
    if !new["pattern"].is_null() && new["pattern"] != old["pattern"] {
        problems.push(format!("{path}: pattern changed"));
    }
}

fn limits(old: &Value, new: &Value, path: &str, problems: &mut Vec<String>) {
    let narrower = |field: &str, sign: f64| match (old[field].as_f64(), new[field].as_f64()) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => (new - old) * sign < 0.0,
    };
    for (field, sign) in [
        ("maximum", 1.0),
        ("maxLength", 1.0),
        ("maxItems", 1.0),
        ("maxProperties", 1.0),
        ("minimum", -1.0),
        ("minLength", -1.0),
        ("minItems", -1.0),
        ("minProperties", -1.0),
    ] {
        if narrower(field, sign) {
            problems.push(format!("{path}: {field} is narrower"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::schema::tests::widgets, *};
    use serde_json::json;

    #[test]
    fn what_may_follow_what() {
        let size = json!({"type": "integer", "maximum": 10});
        for (old, new, wanted) in [
            (json!({"size": size}), json!({"size": size, "colour": {"type": "string"}}), ""),
            (json!({"size": size}), json!({"size": {"type": "integer", "maximum": 11}}), ""),
            (json!({"size": size}), json!({"size": {"type": "number"}}), ""),
            (json!({"size": size}), json!({"size": {"type": "integer", "maximum": 9}}), "maximum is narrower"),
            (json!({"size": size}), json!({"size": {"type": "string"}}), "type changed"),
            (json!({"size": size}), json!({}), "v1.spec.size: removed"),
            (json!({"s": {"type": "string"}}), json!({"s": {"type": "string", "enum": ["a"]}}), "only some values"),
            (
                json!({"s": {"type": "string", "enum": ["a", "b"]}}),
                json!({"s": {"type": "string", "enum": ["b", "c"]}}),
                "\"a\" is no longer allowed",
            ),
            (
                json!({"l": {"type": "array", "items": {"type": "string"}}}),
                json!({"l": {"type": "array", "items": {"type": "integer"}}}),
                "v1.spec.l[*]: type changed",
            ),
            (
                json!({"o": {"type": "object", "properties": {}}}),
                json!({"o": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}}),
                "v1.spec.o.x: is now required",
            ),
            (
                json!({"o": {"type": "object", "properties": {}}}),
                json!({"o": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string", "default": ""}}}}),
                "",
            ),
        ] {
            let problems = incompatible(&widgets("a", old.clone())["spec"], &widgets("b", new.clone())["spec"]);
            match wanted {
                "" => assert!(problems.is_empty(), "{old} {new}: {problems:?}"),
                _ => assert!(problems.iter().any(|p| p.contains(wanted)), "{old} {new}: {problems:?}"),
            }
        }
    }

    #[test]
    fn versions_stay() {
        let old = widgets("a", json!({}));
        let mut new = widgets("b", json!({}));
        new["spec"]["versions"][0]["name"] = "v2".into();
        assert_eq!(incompatible(&old["spec"], &new["spec"]), ["version v1 is gone"]);
        new = widgets("b", json!({}));
        new["spec"]["scope"] = "Cluster".into();
        assert_eq!(incompatible(&old["spec"], &new["spec"]).len(), 1);
    }
}
