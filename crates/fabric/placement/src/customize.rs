//! What makes an object another one on each Location: parameters of the Location in its texts, and the replacements of a Customizer.
//!
//! First the object's own strings are expanded, if its annotation says so; then the replacements are put in, in order, their values
//! expanded if the Customizer's annotation says so. Nothing is sent half-customized: the first thing that goes wrong is a [`Fault`].

mod expand;
mod path;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{Fault, Parameters};
use path::{Budget, Path};

/// On an object: the Customizer that it is customized by, `name` or `namespace/name`.
pub const CUSTOMIZER: &str = "edge.kcp.io/customizer";
/// On an object or a Customizer, with the value `true`: its texts name parameters.
pub const EXPAND: &str = "edge.kcp.io/expand-parameters";

/// So much may be added to one object. It has to fit into a request at the edge.
const ROOM: usize = 1 << 20;
/// So many values may be looked at for one object.
const VISITS: usize = 200_000;
/// What is nested deeper is not parsed by everybody.
const DEEPEST: usize = 100;
const MOST_REPLACEMENTS: usize = 1000;
/// These say which object it is, and cannot be replaced.
const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

/// A Customizer as it was written: what is wrong with it comes out when it is used.
#[derive(Clone, Debug, PartialEq)]
pub struct Customizer {
    expand: bool,
    replacements: Vec<Replacement>,
    /// More than are looked at.
    too_many: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Replacement {
    written: String,
    path: Result<Path, String>,
    /// JSON text.
    value: String,
    /// What the text says; nothing if it has to be expanded first.
    parsed: Option<Result<Value, String>>,
}

impl Customizer {
    /// Reads the object. What is not there is empty.
    pub fn read(object: &Value) -> Self {
        let expand = is_expanded(object);
        let listed = object.get("replacements").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let read = |one: &Value| {
            let text = |field: &str| one.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (written, value) = (text("path"), text("value"));
            let parsed = (!expand).then(|| parse(&value));
            Replacement { path: written.parse(), written, value, parsed }
        };
        let replacements = listed.iter().take(MOST_REPLACEMENTS).map(read).collect();
        Self { expand, replacements, too_many: listed.len() > MOST_REPLACEMENTS }
    }
}

/// The object as it shall be on a Location. Whoever asks says in the fault which object and which Location it is about.
pub fn customize(mut object: Value, customizer: Option<&Customizer>, parameters: &Parameters) -> Result<Value, Fault> {
    let identity = identity_of(&object);
    let mut budget = Budget { visits: VISITS, room: ROOM };
    if is_expanded(&object) && !expand::leaves(&mut object, parameters, &mut budget.room) {
        return Err(Fault::new("", "the parameters of the Location make the object too large"));
    }
    keep_identity(&object, &identity, "")?;
    let Some(customizer) = customizer else { return Ok(object) };
    if customizer.too_many {
        return Err(Fault::new("", format!("the Customizer has more than {MOST_REPLACEMENTS} replacements")));
    }
    for replacement in &customizer.replacements {
        let fault = |why: String| Fault::new(&replacement.written, why);
        let path = replacement.path.as_ref().map_err(|why| fault(why.clone()))?;
        let value = replacement.value(parameters, &mut budget).map_err(fault)?;
        path.put(&mut object, &value, &mut budget, DEEPEST).map_err(fault)?;
        keep_identity(&object, &identity, &replacement.written)?;
    }
    Ok(object)
}

/// The parameters that an object and its Customizer name. Locations that give them the same values get the same object.
pub fn keys_in(object: &Value, customizer: Option<&Customizer>) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    if is_expanded(object) {
        expand::keys_of_leaves(object, &mut keys);
    }
    if let Some(customizer) = customizer.filter(|customizer| customizer.expand) {
        for replacement in &customizer.replacements {
            expand::keys(&replacement.value, &mut keys);
        }
    }
    keys
}

/// The namespace and name of the Customizer that an object asks for.
pub fn customizer_of(object: &Value) -> Option<(String, String)> {
    let said = annotation(object, CUSTOMIZER)?.trim();
    let own = || object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = said.split_once('/').unwrap_or_else(|| (own(), said));
    (!said.is_empty()).then(|| (namespace.to_owned(), name.to_owned()))
}

/// What is wrong with an object whose Customizer is not there.
pub fn missing_customizer(namespace: &str, name: &str) -> Fault {
    let path = format!("$.metadata.annotations['{CUSTOMIZER}']");
    if namespace.is_empty() {
        let why = "an object without a namespace names its Customizer as namespace/name";
        return Fault::new(&path, format!("there is no Customizer {name:?}: {why}"));
    }
    Fault::new(&path, format!("there is no Customizer {name:?} in namespace {namespace:?}"))
}

impl Replacement {
    fn value(&self, parameters: &Parameters, budget: &mut Budget) -> Result<Value, String> {
        if let Some(parsed) = &self.parsed {
            return parsed.clone();
        }
        // In a string a character can become six.
        let added = expand::added(&self.value, parameters).saturating_mul(6);
        budget.room = budget.room.checked_sub(added).ok_or("the object would become too large")?;
        parse(&expand::json(&self.value, parameters))
    }
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| {
        let shown: String = text.chars().take(60).collect();
        format!("the value is not JSON: {error} (a string needs its quotes: value: '\"text\"'); it is {shown}")
    })
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

fn is_expanded(object: &Value) -> bool {
    annotation(object, EXPAND) == Some("true")
}

fn identity_of(object: &Value) -> [Option<Value>; 4] {
    IDENTITY.map(|pointer| object.pointer(pointer).filter(|value| !value.is_null()).cloned())
}

fn keep_identity(object: &Value, before: &[Option<Value>; 4], path: &str) -> Result<(), Fault> {
    for (pointer, before) in IDENTITY.iter().zip(before) {
        if object.pointer(pointer).filter(|value| !value.is_null()) != before.as_ref() {
            let field = pointer[1..].replace('/', ".");
            return Err(Fault::new(path, format!("{field} says which object this is and cannot be customized")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
