//! An object as printers read it: places in its JSON text, found when they are asked for.
//!
//! A list of thousands of rows reads a few fields of each object, so nothing is parsed or copied that no cell shows. The text
//! is our own and valid; of other text some answer is read or none, and nothing panics.

use std::{borrow::Cow, ops::Range};

use schema::selector::scan::{Cursor, unquote};

/// A value within a JSON text, and what may follow it there.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    json: &'a [u8],
    /// Of a whole object: where its metadata lies. Empty if that is not known.
    metadata: (usize, usize),
    /// Of a whole object: its name, which stands far back in sorted metadata. Empty if that is not known.
    name: &'a str,
}

impl<'a> Node<'a> {
    pub fn new(json: &'a [u8]) -> Self {
        Self { json, metadata: (0, 0), name: "" }
    }

    /// An object as we store it: its metadata lies at a known place, and behind it everything but kind and apiVersion,
    /// sorted.
    pub fn object(json: &'a [u8], metadata: Range<usize>, name: &'a str) -> Self {
        Self { json, metadata: (metadata.start, metadata.end), name }
    }

    /// An object's name.
    pub fn name(&self) -> Cow<'a, str> {
        if self.name.is_empty() {
            let found = self.pointer("/metadata/name");
            return found.and_then(|name| name.as_str()).unwrap_or_default();
        }
        Cow::Borrowed(self.name)
    }

    pub fn get(&self, key: &str) -> Option<Self> {
        let mut cursor = Cursor::new(self.json);
        match (self.metadata, key) {
            ((start, 1..), "metadata") => cursor.jump_into(start),
            ((_, end @ 1..), key) if !matches!(key, "kind" | "apiVersion") => {
                cursor.jump_into(end);
                cursor.find_sorted(key)?;
            }
            _ => cursor.enter(key)?,
        }
        cursor.rest().map(Self::new)
    }

    /// As JSON pointers, without escapes: `/spec/ports/0`.
    pub fn pointer(&self, pointer: &str) -> Option<Self> {
        let mut at = *self;
        let mut rest = pointer.strip_prefix('/');
        while let Some(path) = rest {
            let end = path.bytes().position(|b| b == b'/');
            let (step, more) = end.map_or((path, None), |end| (&path[..end], Some(&path[end + 1..])));
            at = match at.json.first()? {
                b'[' => at.items().nth(step.parse().ok()?)?,
                _ => at.get(step)?,
            };
            rest = more;
        }
        Some(at)
    }

    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        let mut cursor = Cursor::new(self.json);
        (self.json.first() == Some(&b'"')).then(|| cursor.value()).flatten().and_then(unquote)
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self.json.first()? {
            b't' => Some(true),
            b'f' => Some(false),
            _ => None,
        }
    }

    pub fn as_i64(&self) -> Option<i64> {
        self.number()?.parse().ok()
    }

    /// A number as it is written.
    pub fn number(&self) -> Option<&'a str> {
        if !matches!(self.json.first()?, b'-' | b'0'..=b'9') {
            return None;
        }
        std::str::from_utf8(Cursor::new(self.json).value()?).ok()
    }

    pub fn is_null(&self) -> bool {
        self.json.first() == Some(&b'n')
    }

    pub fn is_object(&self) -> bool {
        self.json.first() == Some(&b'{')
    }

    /// The elements of a list; none of anything else.
    pub fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let mut cursor = Cursor::new(self.json);
        let mut open = self.json.first() == Some(&b'[');
        cursor.jump_into(1);
        std::iter::from_fn(move || {
            let item = if open { cursor.element() } else { None };
            open = item.is_some();
            item.map(Self::new)
        })
    }

    /// The members of an object; none of anything else.
    pub fn members(&self) -> impl Iterator<Item = (Cow<'a, str>, Self)> + use<'a> {
        let mut cursor = Cursor::new(self.json);
        let mut open = self.json.first() == Some(&b'{');
        cursor.jump_into(1);
        std::iter::from_fn(move || {
            let member = if open { cursor.member() } else { None };
            open = member.is_some();
            member.and_then(|(name, value)| Some((unquote(name)?, Self::new(value))))
        })
    }

    /// How many elements or members there are.
    pub fn count(&self) -> usize {
        let mut cursor = Cursor::new(self.json);
        cursor.jump_into(1);
        match self.json.first() {
            Some(b'[') => std::iter::from_fn(|| cursor.element()).count(),
            Some(b'{') => std::iter::from_fn(|| cursor.member()).count(),
            _ => 0,
        }
    }

    pub fn to_value(&self) -> serde_json::Value {
        Cursor::new(self.json).value().and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Values whose text is hard to scan.
    pub fn any_json() -> impl Strategy<Value = Value> {
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

    /// The same value, by walking through every part of it.
    fn walked(node: &Node<'_>) -> Value {
        let text = node.as_str().map(Value::from);
        let other = || node.as_i64().map(Value::from).or(node.as_bool().map(Value::from));
        match node.json.first() {
            Some(b'[') => node.items().map(|item| walked(&item)).collect(),
            Some(b'{') => node.members().map(|(name, member)| (name.into_owned(), walked(&member))).collect(),
            _ => text.or_else(other).unwrap_or_default(),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_parsing(value in any_json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let node = Node::new(text.as_bytes());
            prop_assert_eq!(node.to_value(), value.clone());
            let count = value.as_array().map(Vec::len).or(value.as_object().map(serde_json::Map::len));
            prop_assert_eq!(node.count(), count.unwrap_or_default());
            prop_assert_eq!(walked(&node), value);
        }

        #[test]
        fn takes_anything(bytes in prop::collection::vec(prop::sample::select(b"{}[]\":,\\ntrue1 \xff".to_vec()), 0..60), start in 0_usize..70, end in 0_usize..70) {
            let node = Node::object(&bytes, start..end, "");
            walked(&node);
            node.pointer("/a/0/t");
            node.count();
        }
    }

    #[test]
    fn metadata_is_jumped_over() {
        let text = r#"{"kind":"A","metadata":{"name":"a","data":1,"managedFields":[{"x":"}]"}]},"data":{"k":"v"},"n":[1,{"b":2}]}"#;
        let metadata = text.find("{\"name\"").unwrap()..text.find(",\"data\":{").unwrap();
        let object = Node::object(text.as_bytes(), metadata, "a");
        assert_eq!((object.name(), Node::new(text.as_bytes()).name()), ("a".into(), "a".into()));
        for (pointer, want) in [
            ("/metadata/name", json!("a")),
            ("/kind", json!("A")),
            ("/data/k", json!("v")),
            ("/n/1/b", json!(2)),
            ("", serde_json::from_str(text).unwrap()),
        ] {
            assert_eq!(object.pointer(pointer).map(|node| node.to_value()), Some(want), "{pointer}");
        }
        for nothing in ["/n/2", "/x", "/c", "/e/f", "/data/k/z", "/metadata/x"] {
            assert!(object.pointer(nothing).is_none(), "{nothing}");
        }
    }
}
