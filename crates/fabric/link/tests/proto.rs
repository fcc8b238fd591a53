//! `docs/reference/link.proto` says what `src/proto.rs` says: it is made from it, line by line.
//! `LINK_PROTO=write cargo test -p selvedge-link --test proto` writes it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

const SOURCE: &str = include_str!("../src/proto.rs");
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/link.proto");

/// `NotReady` as `NOT_READY`.
fn screaming(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(letter.to_ascii_uppercase());
    }
    out
}

/// The type of a field of the schema, from the attribute of prost and the Rust type. Refuses a pair that it does not
/// know, and one that does not fit.
fn type_of(attribute: &str, rust: &str) -> String {
    let parts: Vec<&str> = attribute.split(", ").collect();
    match (parts.as_slice(), rust) {
        (["uint64"], "u64") => "uint64".into(),
        (["bool"], "bool") => "bool".into(),
        (["bytes = \"bytes\""], "Bytes") => "bytes".into(),
        (["bytes = \"bytes\"", "repeated"], "Vec<Bytes>") => "repeated bytes".into(),
        (["bytes = \"bytes\"", "optional"], "Option<Bytes>") => "optional bytes".into(),
        (["message", "repeated"], rust) => {
            let name = rust.strip_prefix("Vec<Wire").and_then(|name| name.strip_suffix('>')).unwrap();
            format!("repeated {name}")
        }
        ([enumeration], "i32") => {
            let name = enumeration.strip_prefix("enumeration = \"").and_then(|name| name.strip_suffix('"'));
            name.unwrap().to_owned()
        }
        other => panic!("{other:?} has no type in the schema"),
    }
}

/// The schema that the Rust source describes. Every line of the source is either translated or known to be no part of
/// the schema.
fn generate(source: &str) -> String {
    let mut out = String::new();
    let (mut enumeration, mut attribute, mut begun) = (String::new(), None::<String>, false);
    for line in source.lines() {
        let text = line.trim();
        let indent = if line.starts_with(' ') { "  " } else { "" };
        let field = text.strip_prefix("#[prost(").and_then(|rest| rest.strip_suffix(")]"));
        if let Some(comment) = text.strip_prefix("//!") {
            out += &format!("//{comment}\n");
        } else if let Some(comment) = text.strip_prefix("///") {
            out += &format!("{indent}//{comment}\n");
        } else if let Some(field) = field {
            attribute = Some(field.to_owned());
        } else if let Some(attribute) = attribute.take() {
            let (kind, number) = attribute.split_once(", tag = \"").unwrap();
            let (name, rust) = text.strip_prefix("pub ").unwrap().strip_suffix(',').unwrap().split_once(": ").unwrap();
            out += &format!("  {} {name} = {};\n", type_of(kind, rust), number.strip_suffix('"').unwrap());
        } else if let Some(name) = text.strip_prefix("pub(crate) struct Wire") {
            out += &format!("message {name}\n");
        } else if let Some((_, name)) = text.split_once("enum ").filter(|(before, _)| before.starts_with("pub")) {
            enumeration = screaming(name.strip_suffix(" {").unwrap());
            out += &format!("enum {name}\n");
        } else if let Some((name, number)) = text.split_once(" = ").filter(|_| !text.starts_with('#')) {
            out += &format!("  {enumeration}_{} = {};\n", screaming(name), number.strip_suffix(',').unwrap());
        } else if text == "}" {
            out += "}\n";
        } else if text.is_empty() {
            out += "\n";
        } else if text == "use bytes::Bytes;" && !begun {
            begun = true;
            out += "syntax = \"proto3\";\n\npackage selvedge.link.v1;\n";
        } else {
            let known = ["#[derive(prost::Message)]", "#[repr(i32)]"].contains(&text)
                || text == "#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]";
            assert!(known, "{text:?} has no translation");
        }
    }
    out
}

#[test]
fn the_published_schema_is_the_one_that_is_spoken() {
    let expected = generate(SOURCE);
    if std::env::var_os("LINK_PROTO").is_some() {
        std::fs::write(FILE, &expected).unwrap();
    }
    let found = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(found == expected, "link.proto differs from src/proto.rs; LINK_PROTO=write writes it anew");
}

#[test]
fn numbers_and_names_are_used_once() {
    let schema = generate(SOURCE);
    let mut seen = std::collections::BTreeSet::new();
    let mut block = "";
    for line in schema.lines() {
        if let Some(name) = line.strip_suffix(" {") {
            block = name;
        } else if let Some((before, number)) = line.strip_suffix(';').and_then(|line| line.split_once(" = ")) {
            let name = before.split(' ').next_back().unwrap();
            assert!(
                seen.insert((block, number.to_owned())) && seen.insert((block, name.to_owned())),
                "{block}: {line}"
            );
        }
    }
    // Two entries for each field: its number and its name.
    assert!(seen.len() > 150, "{}", seen.len());
}
