//! Named formats: `format.dns1123Label().validate(text)`.

use schema::{formats, names};

use super::super::value::{Opaque, Value};
use super::super::{Evaluated, no_overload};
use super::urls;

/// A format by its name, and what is wrong with a text that is not of it.
#[derive(Debug)]
pub struct Format {
    name: &'static str,
    check: fn(&str) -> Vec<String>,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

static FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", check: names::dns1123_label },
    Format { name: "dns1123Subdomain", check: names::dns1123_subdomain },
    Format { name: "dns1035Label", check: names::dns1035_label },
    Format { name: "qualifiedName", check: names::qualified_name },
    Format { name: "dns1123LabelPrefix", check: |text| names::dns1123_label(&prefix(text)) },
    Format { name: "dns1123SubdomainPrefix", check: |text| names::dns1123_subdomain(&prefix(text)) },
    Format { name: "dns1035LabelPrefix", check: |text| names::dns1035_label(&prefix(text)) },
    Format { name: "labelValue", check: names::label_value },
    Format { name: "uri", check: |text| urls::Url::parse_request(text).err().into_iter().collect() },
    Format { name: "uuid", check: |text| complain("uuid", text, "does not match the UUID format") },
    Format { name: "byte", check: |text| complain("byte", text, "invalid base64") },
    Format { name: "date", check: |text| complain("date", text, "invalid date") },
    Format { name: "datetime", check: |text| complain("datetime", text, "invalid datetime") },
];

fn complain(format: &str, text: &str, why: &str) -> Vec<String> {
    if formats::matches(format, text) { Vec::new() } else { vec![why.to_owned()] }
}

/// A prefix may end with a dash, because more follows.
fn prefix(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept = rest.char_indices().next_back().map_or(0, |(at, _)| at);
            format!("{}a", &rest[..kept])
        }
        _ => text.to_owned(),
    }
}

fn find(name: &str) -> Option<Value> {
    FORMATS.iter().find(|format| format.name == name).map(|format| Value::opaque(Opaque::Format(format)))
}

/// `format.name()` and `format.named('name')`.
pub fn call(name: &str, args: &[Value]) -> Evaluated {
    match (name, args) {
        ("named", [Value::String(name)]) => Ok(Value::Optional(find(name).map(Into::into))),
        (name, []) => find(name).map_or_else(no_overload, Ok),
        _ => no_overload(),
    }
}

pub fn method(name: &str, of: &Format, args: &[Value]) -> Evaluated {
    let ("validate", [Value::String(text)]) = (name, args) else { return no_overload() };
    let wrong = (of.check)(text);
    match wrong.is_empty() {
        true => Ok(Value::Optional(None)),
        false => Ok(Value::some(Value::list(wrong.into_iter().map(Value::from).collect()))),
    }
}
