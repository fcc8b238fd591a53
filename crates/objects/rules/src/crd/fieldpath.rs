//! Paths into a schema as definitions write them: `.spec.colour`, `['a.b']`.

use schema::json_schema::{Additional, Node};

/// Where a path leads: the field path to show, and what the schema says there.
pub(crate) fn resolve<'a>(path: &str, root: &'a Node, brackets: bool) -> Result<(String, &'a Node), String> {
    let mut rest = path;
    let mut node = root;
    let mut shown = String::new();
    let end = || "unexpected end of JSON path".to_owned();
    while !rest.is_empty() {
        let name: String;
        if let Some(after) = rest.strip_prefix('[') {
            if !brackets {
                return Err("array notation is not allowed".to_owned());
            }
            if after.is_empty() {
                return Err(end());
            }
            let (quoted, after) = quoted(after)?;
            name = quoted;
            rest = after.strip_prefix(']').ok_or_else(|| match after.chars().next() {
                None => end(),
                Some(c) => format!("expected ] but got {c}"),
            })?;
        } else if let Some(after) = rest.strip_prefix('.') {
            let stop = after.find(['.', '[', ']']).unwrap_or(after.len());
            // A delimiter right after the dot is taken as the name, and is none.
            let stop = if stop == 0 { after.chars().next().map_or(0, char::len_utf8) } else { stop };
            if stop == 0 {
                return Err(end());
            }
            name = after[..stop].to_owned();
            rest = &after[stop..];
        } else {
            let stop = rest.find(['.', '[', ']']).map_or(rest.len(), |at| at.max(1));
            return Err(format!("expected [ or . but got: {}", &rest[..stop]));
        }
        if !node.properties.is_empty() {
            node = node.properties.get(name.as_str()).ok_or("does not refer to a valid field")?;
            if !shown.is_empty() {
                shown.push('.');
            }
            shown.push_str(&name);
        } else if let Some(Additional::Schema(values)) = &node.additional {
            node = values;
            shown.push_str(&format!("[{name}]"));
        } else {
            return Err("does not refer to a valid field".to_owned());
        }
    }
    Ok((shown, node))
}

/// A text in single quotes, unescaped, and what follows it.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let wrong = || {
        let stop = text.find(['.', '[', ']']).unwrap_or(text.len());
        format!("expected single quoted string but got {}", &text[..stop])
    };
    let inner = text.strip_prefix('\'').ok_or_else(wrong)?;
    let mut out = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Ok((out, &inner[at + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('a') => out.push('\u{7}'),
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some('v') => out.push('\u{b}'),
                Some(c @ ('\'' | '\\')) => out.push(c),
                Some(c) => return Err(format!("invalid string literal: invalid escape char \\{c}")),
                None => return Err(wrong()),
            },
            c => out.push(c),
        }
    }
    Err(wrong())
}
