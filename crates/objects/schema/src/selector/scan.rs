//! Reading single places of an object straight from its JSON text.
//!
//! Lists and watches filter thousands of stored objects; building a value for each would cost more than everything else.
//! The scanner skips what is not asked for and stops where the answer is, so it trusts the text to be valid JSON: on
//! other text it gives some answer or none, and never panics.

use std::borrow::Cow;

use super::LabelSelector;

/// Whether the labels of an object match.
pub fn labels_match(json: &[u8], selector: &LabelSelector) -> bool {
    if selector.is_empty() {
        return true;
    }
    let labels = raw_at(json, &["metadata", "labels"]).unwrap_or(b"{}");
    selector.matches(|key| string_at(labels, &[key]))
}

/// The text of the value at a path of member names.
pub fn raw_at<'a>(json: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    let mut at = Cursor { json, position: 0 };
    at.space();
    for name in path {
        at.enter(name)?;
    }
    at.value()
}

/// The same for what most objects do not have: where its name is not to be found at all, nothing has to be read. It has nothing in it
/// that JSON escapes.
pub fn rare_at<'a>(json: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    memchr::memmem::find(json, path.last()?.as_bytes())?;
    raw_at(json, path)
}

/// Whether a word is anywhere in an object. It may stand where it means something else.
pub fn mentions(json: &[u8], word: &str) -> bool {
    memchr::memmem::find(json, word.as_bytes()).is_some()
}

/// The string at a path; `None` if there is none, or something that is no string.
pub fn string_at<'a>(json: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
    let raw = raw_at(json, path)?;
    if raw.first() == Some(&b'"') { unquote(raw) } else { None }
}

/// The string, number or boolean at a path, as text; `None` for anything else.
pub fn scalar_at<'a>(json: &'a [u8], path: &[&str]) -> Option<Cow<'a, str>> {
    let raw = raw_at(json, path)?;
    match raw.first()? {
        b'"' => unquote(raw),
        b'{' | b'[' | b'n' => None,
        _ => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
    }
}

/// The members of the object at a path, in order, each with the text of its value.
pub fn members_at<'a>(json: &'a [u8], path: &[&str]) -> Vec<(Cow<'a, str>, &'a [u8])> {
    let mut members = Vec::new();
    let Some(object) = raw_at(json, path) else { return members };
    let mut at = Cursor { json: object, position: 0 };
    if at.byte() != Some(b'{') {
        return members;
    }
    at.position += 1;
    while let Some((name, value)) = at.member() {
        let Some(name) = unquote(name) else { break };
        members.push((name, value));
    }
    members
}

/// What a JSON string says; borrowed unless it has escapes.
pub fn unquote(quoted: &[u8]) -> Option<Cow<'_, str>> {
    let inner = quoted.get(1..quoted.len().checked_sub(1)?)?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice::<String>(quoted).ok().map(Cow::Owned);
    }
    std::str::from_utf8(inner).ok().map(Cow::Borrowed)
}

/// A place in a JSON text.
pub struct Cursor<'a> {
    json: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(json: &'a [u8]) -> Self {
        Self { json, position: 0 }
    }

    /// To a place between two members or elements.
    pub fn jump_into(&mut self, position: usize) {
        self.position = position;
    }

    /// The text from here on.
    pub fn rest(&self) -> Option<&'a [u8]> {
        self.json.get(self.position..)
    }

    /// The text of the value that begins here.
    pub fn value(&mut self) -> Option<&'a [u8]> {
        let start = self.position;
        self.skip_value()?;
        self.json.get(start..self.position)
    }

    /// The next element of a list.
    pub fn element(&mut self) -> Option<&'a [u8]> {
        self.space();
        if self.byte() == Some(b',') {
            self.position += 1;
            self.space();
        }
        if self.byte()? == b']' { None } else { self.value() }
    }

    fn byte(&self) -> Option<u8> {
        self.json.get(self.position).copied()
    }

    fn space(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.position += 1;
        }
    }

    /// From the start of an object to the start of the value of its member `name`.
    pub fn enter(&mut self, name: &str) -> Option<()> {
        if self.byte() != Some(b'{') {
            return None;
        }
        self.position += 1;
        self.find(name)
    }

    /// From between two members of an object to the value of a later one.
    pub fn find(&mut self, name: &str) -> Option<()> {
        self.find_in(name, false)
    }

    /// The same where members are sorted by their names: nothing is looked at behind the place where it would be.
    pub fn find_sorted(&mut self, name: &str) -> Option<()> {
        self.find_in(name, true)
    }

    fn find_in(&mut self, name: &str, sorted: bool) -> Option<()> {
        loop {
            let key = self.key()?;
            let inner = key.get(1..key.len().checked_sub(1)?)?;
            let same =
                if inner.contains(&b'\\') { unquote(key).as_deref() == Some(name) } else { inner == name.as_bytes() };
            if same {
                return Some(());
            }
            if sorted && inner > name.as_bytes() {
                return None;
            }
            self.skip_value()?;
        }
    }

    /// The next member's quoted name; the cursor is then at its value.
    fn key(&mut self) -> Option<&'a [u8]> {
        self.space();
        if self.byte() == Some(b',') {
            self.position += 1;
            self.space();
        }
        if self.byte() != Some(b'"') {
            return None;
        }
        let start = self.position;
        self.skip_string()?;
        let key = self.json.get(start..self.position)?;
        self.space();
        if self.byte() != Some(b':') {
            return None;
        }
        self.position += 1;
        self.space();
        Some(key)
    }

    /// The next member's quoted name and its value.
    pub fn member(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let key = self.key()?;
        Some((key, self.value()?))
    }

    /// Over a string, from its opening quote.
    fn skip_string(&mut self) -> Option<()> {
        self.position += 1;
        loop {
            let rest = self.json.get(self.position..)?;
            let at = memchr::memchr2(b'"', b'\\', rest)?;
            self.position += at + 1;
            if rest[at] == b'"' {
                return Some(());
            }
            self.position += 1;
        }
    }

    /// Over any value. Brackets are counted rather than recursed into, so that depth costs nothing.
    fn skip_value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.byte()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.position += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.position += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\r' | b'\n' => {
                    self.position += 1;
                    continue;
                }
                _ => {
                    let rest = self.json.get(self.position..)?;
                    let ends = |b: &u8| matches!(b, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
                    self.position += rest.iter().position(ends).unwrap_or(rest.len());
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Values whose text is hard to scan.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-c\"\\\\{}\\[\\],: \u{e9}\n]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"\\\\]{1,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn look_up<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
        path.iter().try_fold(value, |at, name| at.as_object()?.get(name))
    }

    proptest! {
        #[test]
        fn agrees_with_parsing(value in any_json(), path in prop::collection::vec("[a-c\"\\\\]{1,2}", 0..3), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            let names: Vec<&str> = path.iter().map(String::as_str).collect();
            let expected = look_up(&value, &path);
            let raw = raw_at(text.as_bytes(), &names);
            let parsed: Option<Value> = raw.map(|raw| serde_json::from_slice(raw).unwrap());
            prop_assert_eq!(parsed.as_ref(), expected);
            if path.last().is_some_and(|name| !name.contains(['"', '\\'])) {
                prop_assert_eq!(rare_at(text.as_bytes(), &names), raw);
            }
            let string = string_at(text.as_bytes(), &names);
            prop_assert_eq!(string.as_deref(), expected.and_then(Value::as_str));
        }

        #[test]
        fn label_matching_agrees(labels in prop::collection::btree_map("[a-c]", "[x-z\"\\\\]{0,2}", 0..4),
                                 selector in "(!?[a-c]|[a-c](=|!=)[x-z]|[a-c] (in|notin) \\([x-z],[x-z]\\))") {
            let object = json!({"kind": "T", "metadata": {"name": "n", "labels": labels}, "spec": {}});
            let selector = LabelSelector::parse(&selector).unwrap();
            prop_assert_eq!(labels_match(object.to_string().as_bytes(), &selector), selector.matches_object(&object));
        }

        #[test]
        fn any_bytes_are_survived(bytes in "[{}\\[\\]\":,a\\\\ 1]{0,20}") {
            raw_at(bytes.as_bytes(), &["a", "a"]);
            string_at(bytes.as_bytes(), &["a"]);
            members_at(bytes.as_bytes(), &[]);
        }
    }

    #[test]
    fn stops_at_the_answer_and_survives_depth() {
        let cut = br#"{"metadata":{"labels":{"a":"b"},"name":"x"#;
        assert_eq!(string_at(cut, &["metadata", "labels", "a"]).as_deref(), Some("b"));
        assert_eq!(string_at(cut, &["metadata", "name"]), None);
        let deep = format!("{{\"x\":{}{},\"y\":\"z\"}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(string_at(deep.as_bytes(), &["y"]).as_deref(), Some("z"));
        let members = members_at(br#"{"m":{"a":1, "b\n":[2]}}"#, &["m"]);
        assert_eq!(members, [(Cow::Borrowed("a"), &b"1"[..]), (Cow::Borrowed("b\n"), &b"[2]"[..])]);
    }
}
