//! YAML as Go's library writes it: keys in order, lists not indented, long texts folded. Only for answers in YAML.

use serde_json::Value;

const WIDTH: usize = 80;

pub fn write(value: &Value) -> Vec<u8> {
    let mut out = String::new();
    block(&mut out, value, 0, false);
    out.into_bytes()
}

/// One item of a list that stands at the left edge.
pub fn write_item(out: &mut Vec<u8>, item: &Value) {
    let mut text = String::new();
    entry(&mut text, item, 0);
    out.extend_from_slice(text.as_bytes());
}

/// The dash of an item, and the item.
fn entry(out: &mut String, item: &Value, indent: usize) {
    out.push('-');
    match item {
        Value::Object(map) if !map.is_empty() => {
            out.push(' ');
            block(out, item, indent + 2, true);
        }
        Value::Array(list) if !list.is_empty() => {
            out.push(' ');
            block(out, item, indent + 2, true);
        }
        other => leaf(out, other, indent),
    }
}

/// `inline`: the cursor stands behind `- `, so the first line needs no indent.
fn block(out: &mut String, value: &Value, indent: usize, inline: bool) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (i, (key, value)) in map.iter().enumerate() {
                if i > 0 || !inline {
                    out.extend(std::iter::repeat_n(' ', indent));
                }
                out.push_str(&scalar(key, 0));
                out.push(':');
                nested(out, value, indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 || !inline {
                    out.extend(std::iter::repeat_n(' ', indent));
                }
                entry(out, item, indent);
            }
        }
        other => {
            leaf(out, other, indent);
        }
    }
}

fn nested(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            block(out, value, indent + 2, false);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(out, value, indent, false);
        }
        other => leaf(out, other, indent),
    }
}

fn leaf(out: &mut String, value: &Value, indent: usize) {
    out.push(' ');
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&n.to_string()),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        Value::String(text) if text.contains('\n') && !text.starts_with([' ', '\n']) && is_printable(text) => {
            literal(out, text, indent)
        }
        Value::String(text) => {
            let line = out.rsplit('\n').next().map_or(0, str::len);
            let text = scalar(text, line);
            fold(out, &text, line, indent + 2);
        }
    }
    out.push('\n');
}

/// `|` and the lines of the text.
fn literal(out: &mut String, text: &str, indent: usize) {
    let trailing = text.len() - text.trim_end_matches('\n').len();
    out.push('|');
    match trailing {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    for line in text.trim_end_matches('\n').split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', indent + 2));
            out.push_str(line);
        }
    }
    out.extend(std::iter::repeat_n('\n', trailing.saturating_sub(1)));
}

/// Texts longer than a line break at single spaces.
fn fold(out: &mut String, text: &str, mut column: usize, indent: usize) {
    if text.starts_with('"') {
        out.push_str(text);
        return;
    }
    let bytes = text.as_bytes();
    for (i, c) in text.char_indices() {
        let single = c == ' ' && i > 0 && bytes[i - 1] != b' ' && bytes.get(i + 1).is_some_and(|b| *b != b' ');
        if single && column > WIDTH && i + 1 < text.len() {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            out.push(c);
            column += 1;
        }
    }
}

fn scalar(text: &str, _column: usize) -> String {
    if !is_printable(text) || text.contains('\n') {
        return double_quoted(text);
    }
    if means_something_else(text) {
        return format!("\"{text}\"");
    }
    if is_plain(text) { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

fn is_printable(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || c == '\n')
}

fn double_quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            c if c.is_control() => out.push_str(&format!("\\x{:02X}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Unquoted it would be read as a number, a truth value, a time or nothing.
fn means_something_else(text: &str) -> bool {
    let word = matches!(
        text,
        "" | "~"
            | "null"
            | "Null"
            | "NULL"
            | "true"
            | "True"
            | "TRUE"
            | "false"
            | "False"
            | "FALSE"
            | "y"
            | "Y"
            | "yes"
            | "Yes"
            | "YES"
            | "n"
            | "N"
            | "no"
            | "No"
            | "NO"
            | "on"
            | "On"
            | "ON"
            | "off"
            | "Off"
            | "OFF"
            | ".inf"
            | ".Inf"
            | ".INF"
            | "+.inf"
            | "-.inf"
            | "-.Inf"
            | ".nan"
            | ".NaN"
            | ".NAN"
    );
    let first = text.chars().next().unwrap_or(' ');
    let numeric = (first.is_ascii_digit() || matches!(first, '+' | '-' | '.'))
        && (text.replace('_', "").parse::<f64>().is_ok()
            || text.strip_prefix("0x").is_some_and(|t| u64::from_str_radix(t, 16).is_ok())
            || text.strip_prefix("0b").is_some_and(|t| u64::from_str_radix(t, 2).is_ok())
            || text.strip_prefix("0o").is_some_and(|t| u64::from_str_radix(t, 8).is_ok()));
    let sixty = first.is_ascii_digit()
        && text.contains(':')
        && text.chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | '.' | '_'));
    word || numeric || sixty || is_time(text)
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| bytes.get(range).is_some_and(|d| d.iter().all(u8::is_ascii_digit));
    digits(0..4)
        && bytes.get(4) == Some(&b'-')
        && digits(5..7)
        && bytes.get(7) == Some(&b'-')
        && digits(8..10)
        && (bytes.len() == 10 || matches!(bytes.get(10), Some(b'T' | b't' | b' ')))
}

fn is_plain(text: &str) -> bool {
    let first = text.chars().next().unwrap_or(' ');
    let second = text.chars().nth(1);
    let indicator =
        matches!(first, '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`')
            || (matches!(first, '-' | '?' | ':') && second.is_none_or(|c| c == ' '));
    !indicator
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn as_go_writes_it() {
        let value = json!({"a": "1", "b": {"c": [], "d": {}, "e": [1, "x", {"k": "v", "l": [true]}]}, "f": "a: b", "g": "two\nlines\n",
            "h": null, "t": "2020-01-02T03:04:05Z", "m": "no", "u": "plain text"});
        let text = String::from_utf8(write(&value)).unwrap();
        let want = "a: \"1\"\nb:\n  c: []\n  d: {}\n  e:\n  - 1\n  - x\n  - k: v\n    l:\n    - true\nf: 'a: b'\ng: |\n  two\n  lines\nh: null\nm: \"no\"\nt: \"2020-01-02T03:04:05Z\"\nu: plain text\n";
        assert_eq!(text, want);
    }

    #[test]
    fn items_are_as_in_a_list() {
        let items =
            [json!({"a": {"b": [1, {"c": "d\ne"}]}, "z": []}), json!("text"), json!([[1], {}]), json!({}), json!(null)];
        let whole = String::from_utf8(write(&json!({"items": items}))).unwrap();
        let mut apart = b"items:\n".to_vec();
        items.iter().for_each(|item| write_item(&mut apart, item));
        assert_eq!(String::from_utf8(apart).unwrap(), whole);
    }

    /// Whatever is written is read back the same.
    #[test]
    fn reads_back() {
        for text in [
            "",
            " lead",
            "trail ",
            "a\tb",
            "x: y",
            "- a",
            "-",
            "#c",
            "a #b",
            "'q'",
            "\"d\"",
            "1e3",
            "0x1F",
            "1:20",
            "~",
            "a\n\nb",
            "\n",
            "a\n",
            "é",
            "null",
            "%x",
            "@y",
            "---",
            "long ".repeat(60).trim_end(),
        ] {
            let value = json!({"k": text, "l": [text]});
            let written = String::from_utf8(write(&value)).unwrap();
            let read: Value = yaml_serde::from_str(&written).unwrap_or_else(|e| panic!("{text:?}: {e}\n{written}"));
            assert_eq!(read, value, "{written}");
        }
    }
}
