//! Decoding into a typed Go struct and writing it again, done to a value in place.

use std::borrow::Cow;

use schema::go::json_name;
use schema::quantity::Quantity;
use schema::{Field, Presence, Schema, SchemaOr, Shape, Struct, TypeId};
use serde_json::{Map, Value};

use super::{MAX_STRICT_ERRORS, Path, Step, scalar};

/// Makes a value what upstream's typed decoding makes of it: types are checked, fields that do not exist and empty
/// optional ones go, zero values that Go always writes come, and quantities, times and bytes get their canonical form.
///
/// Answers the sentences about unknown fields (`unknown field "spec.x"`), or the error that Go's decoder gives. Doing it
/// twice changes nothing.
pub fn conform(schema: &Schema, ty: TypeId, value: &mut Value) -> Result<Vec<String>, String> {
    let mut walk = Walk { schema, unknown: Vec::new(), mismatch: None, structs: MAX_STRUCTS };
    let place = Place { path: None, owner: None, go_type: None };
    walk.value(ty, value, place)?;
    match walk.mismatch {
        Some(error) => Err(error),
        None => Ok(walk.unknown),
    }
}

struct Walk<'s> {
    schema: &'s Schema,
    unknown: Vec<String>,
    /// Go goes on after a value of the wrong type and reports the first of them at the end.
    mismatch: Option<String>,
    /// How many more structs there may be.
    structs: u32,
}

/// A few bytes of a body can make a struct that takes a kilobyte, so there is an end to them.
const MAX_STRUCTS: u32 = 200_000;

/// Where a value stands, for error messages.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: Option<&'a Path<'a>>,
    /// The innermost struct.
    owner: Option<&'a str>,
    /// The Go type as the field declares it, where the shape does not tell.
    go_type: Option<&'a str>,
}

type Abort = String;

impl Walk<'_> {
    fn value(&mut self, ty: TypeId, value: &mut Value, place: Place<'_>) -> Result<(), Abort> {
        let schema = self.schema;
        if value.is_null() {
            *value = self.zero(ty)?;
            return Ok(());
        }
        match (schema.shape(ty), &mut *value) {
            (Shape::Any, value) => return self.any(ty, value, place),
            (Shape::FieldsV1, _) | (Shape::Boolean, Value::Bool(_)) | (Shape::String, Value::String(_)) => {}
            (Shape::Number, Value::Number(_)) => {}
            (Shape::Integer { bits }, Value::Number(number)) => match number.as_i64() {
                Some(n) if *bits == 64 || i32::try_from(n).is_ok() => {}
                _ => {
                    let given = format!("number {number}");
                    self.mismatch(ty, &given, place);
                }
            },
            (Shape::Bytes, Value::String(text)) => match scalar::base64(text) {
                Ok(canonical) => {
                    if let Some(canonical) = canonical {
                        *text = canonical;
                    }
                }
                Err(error) => drop(self.mismatch.get_or_insert(error)),
            },
            (Shape::IntOrString, Value::String(_)) => {}
            (Shape::IntOrString, Value::Number(n)) if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {}
            (Shape::IntOrString, other) => return Err(plain_mismatch(other, "int32")),
            (Shape::Quantity, value) => return quantity(value),
            (Shape::Time, value) => return time(value, scalar::time),
            (Shape::MicroTime, value) => return time(value, scalar::micro_time),
            (Shape::Duration, Value::String(text)) => *text = scalar::duration(text)?,
            (Shape::Duration, other) => return Err(plain_mismatch(other, "string")),
            (Shape::Array { items, .. }, Value::Array(list)) => return self.list(*items, list, place),
            (Shape::Map { values, .. }, Value::Object(map)) => return self.map(*values, map, place),
            (Shape::Struct(s), Value::Object(map)) => return self.object(ty, s, map, place),
            (_, other) => {
                let given = json_name(other);
                self.mismatch(ty, given, place);
            }
        }
        Ok(())
    }

    fn list(&mut self, items: TypeId, list: &mut [Value], place: Place<'_>) -> Result<(), Abort> {
        let go_type = place.go_type.and_then(element_type);
        for (index, item) in list.iter_mut().enumerate() {
            let path = Path { parent: place.path, step: Step::Index(index) };
            self.value(items, item, Place { path: Some(&path), go_type, ..place })?;
        }
        Ok(())
    }

    fn map(&mut self, values: TypeId, map: &mut Map<String, Value>, place: Place<'_>) -> Result<(), Abort> {
        let go_type = place.go_type.and_then(element_type);
        for (key, value) in map.iter_mut() {
            let path = Path { parent: place.path, step: Step::Entry(key) };
            self.value(values, value, Place { path: Some(&path), go_type, ..place })?;
            // Upstream stores no null among bytes, only none of them.
            if value.is_null() && matches!(self.schema.shape(values), Shape::Bytes) {
                *value = "".into();
            }
        }
        Ok(())
    }

    fn object(&mut self, ty: TypeId, s: &Struct, map: &mut Map<String, Value>, place: Place<'_>) -> Result<(), Abort> {
        self.structs = self.structs.checked_sub(1).ok_or("the object has too many parts")?;
        if !s.preserve_unknown {
            self.drop_unknown(s, map, place.path);
        }
        let name = &self.schema.get(ty).name;
        let owner = name.rsplit('.').next();
        for field in &s.fields {
            // Null is the same as absent to Go.
            let given = map.get_mut(&*field.name).filter(|v| !v.is_null());
            let Some(value) = given else {
                self.absent(field, map)?;
                continue;
            };
            let path = Path { parent: place.path, step: Step::Key(&field.name) };
            let go_type = field.published.as_ref().and_then(|p| p.go_type.as_deref());
            self.value(field.ty, value, Place { path: Some(&path), owner, go_type })?;
            if field.presence == Presence::OmitEmpty && self.is_empty(field.ty, value) {
                map.remove(&*field.name);
            }
        }
        Ok(())
    }

    fn drop_unknown(&mut self, s: &Struct, map: &mut Map<String, Value>, path: Option<&Path<'_>>) {
        map.retain(|key, _| {
            let known = s.field(key).is_some();
            if !known && self.unknown.len() < MAX_STRICT_ERRORS {
                let path = Path { parent: path, step: Step::Key(key) };
                self.unknown.push(format!("unknown field \"{path}\""));
            }
            known
        });
    }

    fn absent(&self, field: &Field, map: &mut Map<String, Value>) -> Result<(), Abort> {
        let zero = match field.presence {
            Presence::OmitEmpty | Presence::Pointer => {
                map.remove(&*field.name);
                return Ok(());
            }
            Presence::Nullable => Value::Null,
            Presence::Always => self.zero(field.ty)?,
        };
        map.insert(field.name.to_string(), zero);
        Ok(())
    }

    /// What Go writes for a variable that was never set.
    fn zero(&self, ty: TypeId) -> Result<Value, Abort> {
        Ok(match self.schema.shape(ty) {
            Shape::String => "".into(),
            Shape::Boolean => false.into(),
            Shape::Integer { .. } | Shape::Number | Shape::IntOrString => 0.into(),
            Shape::Quantity => "0".into(),
            Shape::Duration => "0s".into(),
            Shape::Struct(s) => {
                let mut map = Map::new();
                for field in &s.fields {
                    self.absent(field, &mut map)?;
                }
                Value::Object(map)
            }
            _ => Value::Null,
        })
    }

    fn is_empty(&self, ty: TypeId, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Bool(b) => !b,
            Value::Number(n) => n.as_f64() == Some(0.0) && !matches!(self.schema.shape(ty), Shape::IntOrString),
            Value::String(s) => s.is_empty() && !matches!(self.schema.shape(ty), Shape::IntOrString),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => match self.schema.shape(ty) {
                Shape::Struct(_) => self.zero(ty).is_ok_and(|zero| *value == zero),
                _ => map.is_empty(),
            },
        }
    }

    /// Mostly kept as it is; the three types of CustomResourceDefinitions that are a schema or something else are not.
    fn any(&mut self, ty: TypeId, value: &mut Value, place: Place<'_>) -> Result<(), Abort> {
        let Some((other, props)) = self.schema.schema_or(ty) else { return Ok(()) };
        match (other, &mut *value) {
            (_, Value::Object(_)) => self.value(props, value, place),
            (SchemaOr::Array, Value::Array(list)) => self.list(props, list, place),
            (SchemaOr::StringArray, Value::Array(_)) | (SchemaOr::Bool, Value::Bool(_)) => Ok(()),
            (SchemaOr::Bool, _) => Err("boolean or JSON schema expected".to_owned()),
            (SchemaOr::StringArray, _) => Err("string array or JSON schema expected".to_owned()),
            (SchemaOr::Array, other) => Err(plain_mismatch(other, "v1.JSONSchemaProps")),
        }
    }

    fn mismatch(&mut self, ty: TypeId, given: &str, place: Place<'_>) {
        if self.mismatch.is_some() {
            return;
        }
        let expected = place.go_type.map_or_else(|| self.go_type(ty), Cow::Borrowed);
        self.mismatch = Some(match (place.owner, place.path) {
            (Some(owner), Some(path)) => {
                let field = fields_of(path);
                format!("json: cannot unmarshal {given} into Go struct field {owner}.{field} of type {expected}")
            }
            _ => format!("json: cannot unmarshal {given} into Go value of type {expected}"),
        });
    }

    fn go_type(&self, ty: TypeId) -> Cow<'static, str> {
        match self.schema.shape(ty) {
            Shape::Boolean => "bool".into(),
            Shape::Integer { bits: 32 } => "int32".into(),
            Shape::Integer { .. } => "int64".into(),
            Shape::Number => "float64".into(),
            Shape::Bytes => "[]uint8".into(),
            Shape::Array { items, .. } => format!("[]{}", self.go_type(*items)).into(),
            Shape::Map { values, .. } => format!("map[string]{}", self.go_type(*values)).into(),
            Shape::Quantity => "resource.Quantity".into(),
            Shape::IntOrString => "intstr.IntOrString".into(),
            Shape::Struct(_) => {
                let mut parts = self.schema.get(ty).name.rsplit('.');
                let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{package}.{name}").into()
            }
            _ => "string".into(),
        }
    }
}

/// The path as Go's errors show it: fields only, without indexes and keys of maps.
fn fields_of(path: &Path<'_>) -> String {
    let mut names = Vec::new();
    let mut at = Some(path);
    while let Some(path) = at {
        if let Step::Key(key) = path.step {
            names.push(key);
        }
        at = path.parent;
    }
    names.reverse();
    names.join(".")
}

/// `[]v1.X` and `map[string]v1.X` hold `v1.X`.
fn element_type(go_type: &str) -> Option<&str> {
    let rest = go_type
        .strip_prefix("[]")
        .or_else(|| go_type.strip_prefix("map[").and_then(|t| t.split_once(']')).map(|t| t.1))?;
    Some(rest.strip_prefix('*').unwrap_or(rest))
}

/// The error of a type that decodes itself, which does not know where it stands.
fn plain_mismatch(value: &Value, expected: &str) -> Abort {
    let given = match value {
        Value::Number(n) => format!("number {n}"),
        other => json_name(other).to_owned(),
    };
    format!("json: cannot unmarshal {given} into Go value of type {expected}")
}

fn quantity(value: &mut Value) -> Result<(), Abort> {
    let text = match &*value {
        Value::String(text) => Cow::Borrowed(text.trim()),
        other => Cow::Owned(other.to_string()),
    };
    let canonical = Quantity::parse(&text).map_err(|e| e.to_string())?.to_string();
    *value = canonical.into();
    Ok(())
}

fn time(value: &mut Value, read: fn(&str) -> Result<Option<String>, String>) -> Result<(), Abort> {
    let Value::String(text) = &*value else {
        let given = json_name(value);
        return Err(format!("json: cannot unmarshal {given} into Go value of type string"));
    };
    *value = read(text)?.map_or(Value::Null, Value::String);
    Ok(())
}
