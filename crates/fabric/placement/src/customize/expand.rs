//! `%(key)` in texts: what a Location's labels and annotations stand in for.
//!
//! A key is a run of letters, digits and `-_./`, as labels and annotations have. `%(key)` that the Location does not know stays as it
//! is written; so does a `%` before anything else. `%%` is one percent sign. What was put in is not looked at again.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Parameters;

/// What a text consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    /// `%%`.
    Percent,
    /// `%(key)`: as written, and the key.
    Parameter(&'a str, &'a str),
}

/// Cuts the first piece off.
fn piece(text: &str) -> Option<(Piece<'_>, &str)> {
    let at = match text.find('%') {
        _ if text.is_empty() => return None,
        Some(0) => return Some(special(text)),
        Some(at) => at,
        None => text.len(),
    };
    Some((Piece::Text(&text[..at]), &text[at..]))
}

/// Of a text that begins with a percent sign.
fn special(text: &str) -> (Piece<'_>, &str) {
    if let Some(rest) = text.strip_prefix("%%") {
        return (Piece::Percent, rest);
    }
    let key = text.strip_prefix("%(").and_then(|rest| rest.split_once(')'));
    match key.filter(|(key, _)| is_key(key)) {
        Some((key, rest)) => (Piece::Parameter(&text[..text.len() - rest.len()], key), rest),
        None => (Piece::Text(&text[..1]), &text[1..]),
    }
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
}

/// A text with its parameters put in. `None` if that is the text itself.
pub fn text(text: &str, parameters: &Parameters) -> Option<String> {
    if !text.contains('%') {
        return None;
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((piece, after)) = piece(rest) {
        rest = after;
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Percent => out.push('%'),
            Piece::Parameter(written, key) => out.push_str(parameters.get(key).unwrap_or(written)),
        }
    }
    Some(out)
}

/// JSON text with its parameters put in: within strings as JSON writes them, so that no value can end the string; elsewhere as they are, so
/// that a parameter can be a number or an object.
pub fn json(text: &str, parameters: &Parameters) -> String {
    let (mut out, mut rest, mut inside) = (String::with_capacity(text.len()), text, false);
    while let Some((piece, after)) = piece(rest) {
        rest = after;
        match piece {
            Piece::Text(text) => {
                inside = ends_inside(text, inside);
                out.push_str(text);
            }
            Piece::Percent => out.push('%'),
            Piece::Parameter(written, key) => match parameters.get(key) {
                Some(value) if inside => {
                    let quoted = Value::from(value).to_string();
                    out.push_str(&quoted[1..quoted.len() - 1]);
                }
                Some(value) => out.push_str(value),
                None => out.push_str(written),
            },
        }
    }
    out
}

/// Whether a piece of JSON text ends within a string. A percent sign is never what a backslash stands before, so pieces end between
/// characters of the string.
fn ends_inside(text: &str, mut inside: bool) -> bool {
    let mut escaped = false;
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = inside,
            b'"' => inside = !inside,
            _ => {}
        }
    }
    inside
}

/// The parameters that a text names.
pub fn keys(text: &str, into: &mut BTreeSet<String>) {
    let mut rest = text;
    while let Some((piece, after)) = piece(rest) {
        rest = after;
        if let Piece::Parameter(_, key) = piece
            && !into.contains(key)
        {
            into.insert(key.to_owned());
        }
    }
}

/// Puts the parameters into every string of a value; names of members stay. `false` if that would add more than `room` bytes.
pub fn leaves(value: &mut Value, parameters: &Parameters, room: &mut usize) -> bool {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(leaf) if leaf.contains('%') => {
                match room.checked_sub(added(leaf, parameters)) {
                    Some(left) => *room = left,
                    None => return false,
                }
                if let Some(expanded) = text(leaf, parameters) {
                    *leaf = expanded;
                }
            }
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values_mut()),
            _ => {}
        }
    }
    true
}

/// How many bytes the values in a text come to.
pub fn added(text: &str, parameters: &Parameters) -> usize {
    let (mut sum, mut rest) = (0_usize, text);
    while let Some((piece, after)) = piece(rest) {
        rest = after;
        if let Piece::Parameter(_, key) = piece {
            sum = sum.saturating_add(parameters.get(key).map_or(0, str::len));
        }
    }
    sum
}

/// The parameters that the strings of a value name.
pub fn keys_of_leaves(value: &Value, into: &mut BTreeSet<String>) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(leaf) => keys(leaf, into),
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn somewhere() -> Parameters {
        let pairs = |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Parameters {
            labels: pairs(&[
                ("env", "prod"),
                ("loc-name", "florin"),
                ("a.b/c_d", "x"),
                ("replicas", "3"),
                ("none", ""),
            ]),
            annotations: pairs(&[("env", "annotated"), ("note", "say \"hi\" %(env) %%\n"), ("list", "[1, 2]")]),
        }
    }

    #[test]
    fn texts() {
        for (written, meant) in [
            ("plain", "plain"),
            ("", ""),
            ("%(env)", "prod"),
            ("env is %(env).", "env is prod."),
            ("%(env)%(loc-name)", "prodflorin"),
            ("%(none)|", "|"),
            ("%(list)", "[1, 2]"),
            ("%(a.b/c_d)", "x"),
            // Unknown, or no key at all.
            ("%(unknown)", "%(unknown)"),
            ("%()", "%()"),
            ("%(", "%("),
            ("%(env", "%(env"),
            ("%", "%"),
            ("100%", "100%"),
            ("%d", "%d"),
            ("%( env )", "%( env )"),
            ("%(ENV)", "%(ENV)"),
            ("(env)", "(env)"),
            // Percent signs.
            ("%%", "%"),
            ("%%%", "%%"),
            ("%%%%", "%%"),
            ("%%(env)", "%(env)"),
            ("%%%(env)", "%prod"),
            ("%(env)%%", "prod%"),
            // Neither what was put in nor half a parameter is looked at again.
            ("%(note)", "say \"hi\" %(env) %%\n"),
            ("%(a%(env))", "%(aprod)"),
            ("%(a%%b)", "%(a%b)"),
            ("ä%(env)ö%", "äprodö%"),
        ] {
            assert_eq!(text(written, &somewhere()).as_deref().unwrap_or(written), meant, "{written}");
        }
    }

    #[test]
    fn json_texts() {
        for (written, meant) in [
            (r#""env is %(env)""#, json!("env is prod")),
            (r#""%(note)""#, json!("say \"hi\" %(env) %%\n")),
            ("%(replicas)", json!(3)),
            ("%(list)", json!([1, 2])),
            (r#"{"a": %(replicas), "b": "\"%(env)\\", "c": %(replicas)}"#, json!({"a": 3, "b": "\"prod\\", "c": 3})),
            (r#"["\\", "%(note)", %(replicas)]"#, json!(["\\", "say \"hi\" %(env) %%\n", 3])),
            (r#""100%%""#, json!("100%")),
            (r#""%(unknown)""#, json!("%(unknown)")),
        ] {
            let expanded = json(written, &somewhere());
            assert_eq!(serde_json::from_str::<Value>(&expanded).ok(), Some(meant), "{written} became {expanded}");
        }
    }

    #[test]
    fn leaves_only() {
        let mut value = json!({"%(env)": ["%(env)", 1, null, {"a": "%(loc-name)"}], "b": true});
        let mut found = BTreeSet::new();
        keys_of_leaves(&value, &mut found);
        assert_eq!(found, ["env", "loc-name"].map(str::to_owned).into());
        assert!(leaves(&mut value, &somewhere(), &mut 100));
        assert_eq!(value, json!({"%(env)": ["prod", 1, null, {"a": "florin"}], "b": true}));
        let mut much = json!(["%(env)%(env)", "%(env)"]);
        let mut room = 11;
        assert!(!leaves(&mut much, &somewhere(), &mut room));
    }

    proptest! {
        #[test]
        fn what_is_escaped_comes_back(written in "[%()a-c]{0,12}|\\PC{0,12}") {
            let escaped = written.replace('%', "%%");
            prop_assert_eq!(text(&escaped, &somewhere()).unwrap_or(escaped), written.clone());
            let quoted = Value::from(written.replace('%', "%%")).to_string();
            let back: Value = serde_json::from_str(&json(&quoted, &somewhere())).unwrap();
            prop_assert_eq!(back, Value::from(written));
        }

        /// A value never ends the string that it is put into.
        #[test]
        fn strings_stay_strings(value in "\\PC{0,12}|[\"\\\\%()]{0,8}", before in "[\"\\\\ab]{0,6}") {
            let parameters = Parameters { labels: [("k".to_owned(), value.clone())].into(), ..Parameters::default() };
            let quoted = Value::from(format!("{before}%(k)!")).to_string();
            let back: Value = serde_json::from_str(&json(&quoted, &parameters)).unwrap();
            prop_assert_eq!(back, Value::from(format!("{before}{value}!")));
        }

        #[test]
        fn the_keys_that_are_found_are_those_that_matter(written in "(%\\(|%|env|loc-name|\\)|x| ){0,10}") {
            let mut found = BTreeSet::new();
            keys(&written, &mut found);
            let all = somewhere();
            let some = |of: &std::collections::BTreeMap<String, String>| -> std::collections::BTreeMap<String, String> {
                of.iter().filter(|(key, _)| found.contains(*key)).map(|(k, v)| (k.clone(), v.clone())).collect()
            };
            let fewer = Parameters { labels: some(&all.labels), annotations: some(&all.annotations) };
            prop_assert_eq!(text(&written, &all), text(&written, &fewer));
        }
    }
}
