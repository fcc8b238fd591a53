//! Names of the types of which admission policies make objects: the type of a field is named by the path to the field.

use super::syntax::{Expr, Kind, MacroName};

/// Complains about objects whose type is named otherwise than the path that leads to them, as in
/// `Object{spec: Object.status{}}`. Only what is written out in the expression is looked at.
pub fn check(expr: &Expr) -> Result<(), String> {
    let mut wrong = Vec::new();
    root(expr, &mut wrong);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("type mismatch: {}", wrong.join("\n"))),
    }
}

/// A message that is in no other is at the path that its own type names.
fn root(expr: &Expr, wrong: &mut Vec<String>) {
    match &expr.kind {
        Kind::Message(name, fields) if name == "JSONPatch" => {
            fields.iter().for_each(|(_, value, _)| root(value, wrong))
        }
        Kind::Message(name, _) => at(expr, name, wrong),
        _ => expr.children(&mut |child| root(child, wrong)),
    }
}

fn at(expr: &Expr, path: &str, wrong: &mut Vec<String>) {
    match &expr.kind {
        Kind::Message(name, fields) => {
            if name != path {
                wrong.push(format!(
                    "unexpected type name {name:?}, expected {path:?}, \
                     which matches field name path from root Object type"
                ));
            }
            for (key, value, _) in fields {
                if let Kind::Text(field) = &key.kind {
                    at(value, &format!("{path}.{field}"), wrong);
                }
            }
        }
        Kind::List(items) => items.iter().for_each(|(item, _)| at(item, path, wrong)),
        Kind::Map(entries) => entries.iter().for_each(|(_, value, _)| at(value, path, wrong)),
        Kind::If(parts) => parts[1..].iter().for_each(|part| at(part, path, wrong)),
        Kind::Macro(call) if matches!(call.name, MacroName::Map | MacroName::TransformList | MacroName::Bind) => {
            call.bodies.last().into_iter().for_each(|body| at(body, path, wrong));
        }
        _ => {}
    }
}
