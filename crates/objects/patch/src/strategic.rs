//! Strategic merge patch: lists merge by key where the schema says so, and directives in the patch steer it.
//!
//! | directive | effect |
//! |---|---|
//! | `$patch: replace` | this object, or the list it is in, is taken from the patch |
//! | `$patch: delete` | this object, or the list element with this key, goes |
//! | `$retainKeys: […]` | all other keys of this object go |
//! | `$deleteFromPrimitiveList/f: […]` | these values leave list `f` |
//! | `$setElementOrder/f: […]` | the order of list `f` afterwards |

use schema::go;
use schema::status::{Result, Status};
use schema::{PatchStrategy, Schema, Shape, TypeId};
use serde_json::{Map, Value};

use super::order::{Positions, arrange};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Merges `patch` into `doc`, an object of type `ty`. `doc` is untouched when it fails.
pub fn strategic(schema: &Schema, ty: TypeId, doc: &mut Value, patch: &Value) -> Result<()> {
    let Value::Object(patch) = patch else { return Err(Status::bad_request(BAD_DOCUMENT)) };
    let original = doc.as_object().cloned().unwrap_or_default();
    let merged = Merge { schema }.map(original, patch.clone(), Some(ty))?;
    *doc = Value::Object(merged);
    Ok(())
}

const BAD_DOCUMENT: &str = "invalid JSON document";
const BAD_DELETE_LIST: &str = "invalid patch format of primitive list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
const BAD_ORDER: &str = "invalid patch format of setElementOrder list";

/// Upstream answers 500 without a reason for most mistakes in a patch.
fn failed(message: impl Into<String>) -> Status {
    Status::new(500, "", message)
}

fn no_merge_key(element: &Map<String, Value>, key: &str) -> Status {
    let element = go::plain(&Value::Object(element.clone()));
    failed(format!("map: {element} does not contain declared merge key: {key}"))
}

fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> Status {
    let map = go::plain(&Value::Object(map.clone()));
    failed(format!("unknown patch type: {} in map: {map}", go::plain(directive)))
}

fn bad_type(expected: &str, actual: &Value) -> Status {
    failed(format!("expected a {expected}, but received a {}", go::type_name(actual)))
}

struct Merge<'s> {
    schema: &'s Schema,
}

type Found<'s> = (Option<TypeId>, Option<&'s PatchStrategy>);

impl<'s> Merge<'s> {
    fn map(
        &self,
        mut original: Map<String, Value>,
        mut patch: Map<String, Value>,
        ty: Option<TypeId>,
    ) -> Result<Map<String, Value>> {
        match patch.get(PATCH) {
            None => {}
            Some(Value::String(s)) if s == "replace" => {
                patch.remove(PATCH);
                return Ok(patch);
            }
            Some(Value::String(s)) if s == "delete" => return Ok(Map::new()),
            Some(other) => return Err(unknown_directive(other, &patch)),
        }
        retain_keys(&mut original, &mut patch)?;
        self.ordered_lists(&mut original, &mut patch, ty)?;
        for (key, value) in patch {
            let (key, deleting) = match key.strip_prefix(DELETE_FROM) {
                Some(rest) => {
                    let list = rest.strip_prefix('/').ok_or_else(|| Status::bad_request(BAD_DELETE_LIST))?;
                    (list.to_owned(), true)
                }
                None => (key, false),
            };
            if value.is_null() {
                original.remove(&key);
                continue;
            }
            let Some(old) = original.get_mut(&key).filter(|old| same_type(old, &value)) else {
                if !deleting {
                    set_or_remove(&mut original, key, without_directives(without_nulls(value)));
                }
                continue;
            };
            match (old.take(), value) {
                (Value::Object(old), Value::Object(new)) => {
                    let (ty, strategy) = self.field(ty, &key)?;
                    let merged = if strategy.is_some_and(|s| s.replace) { new } else { self.map(old, new, ty)? };
                    original.insert(key, Value::Object(merged));
                }
                (Value::Array(old), Value::Array(new)) => {
                    let (ty, strategy) = self.list_field(ty, &key)?;
                    let merged = self.list(old, new, ty, strategy, deleting)?;
                    original.insert(key, Value::Array(merged));
                }
                (_, new) => set_or_remove(&mut original, key, without_directives(new)),
            }
        }
        Ok(original)
    }

    /// Merges the lists that come with a `$setElementOrder`, and takes them out of the patch.
    fn ordered_lists(
        &self,
        original: &mut Map<String, Value>,
        patch: &mut Map<String, Value>,
        ty: Option<TypeId>,
    ) -> Result<()> {
        let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ORDER)).cloned().collect();
        for directive in directives {
            let Some(order) = patch.remove(&directive) else { continue };
            let order = match order {
                Value::Array(order) => order,
                other => return Err(bad_type("[]interface {}", &other)),
            };
            let key = directive
                .strip_prefix(SET_ORDER)
                .and_then(|rest| rest.strip_prefix('/'))
                .ok_or_else(|| Status::bad_request(BAD_ORDER))?;
            let live = take_list(original, key)?;
            let new = take_list(patch, key)?;
            let (item, strategy) = self.list_field(ty, key)?;
            let merge_key = merge_key(strategy);
            check_order(new.as_deref().unwrap_or_default(), &order, merge_key)?;
            let merged = match (live.clone(), new.clone()) {
                (None, None) => continue,
                (Some(live), None) => live,
                (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
                (Some(live), Some(new)) => self.list(live, new, item, strategy, false)?,
            };
            let (live, new) = (live.unwrap_or_default(), new.unwrap_or_default());
            let objects = of_objects(&[&live, &new])?;
            let wanted = Positions::of(&order, merge_key);
            if let Some(key) = merge_key {
                need_keys(&merged, key)?;
                if objects {
                    need_keys(&order, key)?;
                    need_keys(&live, key)?;
                }
            }
            let (listed, others) = merged.into_iter().partition(|item| wanted.find(item, merge_key).is_some());
            original.insert(key.to_owned(), Value::Array(arrange(listed, others, &order, &live, merge_key)));
        }
        Ok(())
    }

    fn list(
        &self,
        live: Vec<Value>,
        patch: Vec<Value>,
        item: Option<TypeId>,
        strategy: Option<&PatchStrategy>,
        deleting: bool,
    ) -> Result<Vec<Value>> {
        if !deleting && !strategy.is_some_and(|s| s.merge) {
            return Ok(patch);
        }
        if live.is_empty() && patch.is_empty() {
            return Ok(live);
        }
        if of_objects(&[&live, &patch])? {
            let Some(key) = merge_key(strategy) else {
                return Err(failed(format!("cannot merge lists without merge key for {}", self.kind_name(item))));
            };
            self.objects(live, patch, item, key)
        } else if deleting {
            let gone = Positions::of(&patch, None);
            Ok(live.into_iter().filter(|item| gone.find(item, None).is_none()).collect())
        } else {
            let mut merged = live.clone();
            merged.extend(patch.iter().cloned());
            deduplicate(&mut merged);
            let wanted = Positions::of(&patch, None);
            let (listed, others) = merged.into_iter().partition(|item| wanted.find(item, None).is_some());
            Ok(arrange(listed, others, &patch, &live, None))
        }
    }

    /// Merges two lists of objects by their key.
    fn objects(&self, mut live: Vec<Value>, patch: Vec<Value>, item: Option<TypeId>, key: &str) -> Result<Vec<Value>> {
        let mut replace = false;
        let mut plain = Vec::with_capacity(patch.len());
        let mut deleted = Vec::new();
        for element in patch {
            let Value::Object(map) = element else { continue };
            match map.get(PATCH) {
                None => plain.push(Value::Object(map)),
                Some(Value::String(s)) if s == "delete" => {
                    if !map.contains_key(key) {
                        return Err(no_merge_key(&map, key));
                    }
                    deleted.push(Value::Object(map));
                }
                Some(Value::String(s)) if s == "replace" => replace = true,
                Some(Value::String(s)) if s == "merge" => {
                    return Err(failed("merging lists cannot yet be specified in the patch"));
                }
                Some(other) => return Err(unknown_directive(other, &map)),
            }
        }
        if replace {
            (live, plain) = (plain, Vec::new());
        } else if !deleted.is_empty() {
            let gone = Positions::of(&deleted, Some(key));
            live.retain(|item| gone.find(item, Some(key)).is_none());
        }
        let mut positions = Positions::of(&live, Some(key));
        let mut merged = live.clone();
        for element in &plain {
            let Value::Object(new) = element else { continue };
            if !new.contains_key(key) {
                return Err(no_merge_key(new, key));
            }
            match positions.find(element, Some(key)) {
                Some(at) => {
                    let old = match merged[at].take() {
                        Value::Object(old) => old,
                        _ => Map::new(),
                    };
                    merged[at] = Value::Object(self.map(old, new.clone(), item)?);
                }
                None => {
                    positions.insert(element, Some(key), merged.len());
                    merged.push(element.clone());
                }
            }
        }
        need_keys(&merged, key)?;
        need_keys(&live, key)?;
        let wanted = Positions::of(&plain, Some(key));
        let (listed, others) = merged.into_iter().partition(|item| wanted.find(item, Some(key)).is_some());
        Ok(arrange(listed, others, &plain, &live, Some(key)))
    }

    /// The type and the marks of a field of `ty`.
    fn field(&self, ty: Option<TypeId>, key: &str) -> Result<Found<'s>> {
        let Some(ty) = ty else { return Ok((None, None)) };
        match self.schema.shape(ty) {
            Shape::Struct(s) => match s.field(key) {
                Some(field) => Ok((Some(field.ty), field.patch.as_ref())),
                None if s.preserve_unknown => Ok((None, None)),
                None => {
                    let name = &self.schema.get(ty).name;
                    let name = name.rsplit('.').next().unwrap_or(name);
                    Err(failed(format!("unable to find api field in struct {name} for the json field \"{key}\"")))
                }
            },
            Shape::Map { values, .. } => Ok((Some(*values), None)),
            Shape::Any | Shape::FieldsV1 => Ok((None, None)),
            _ => Err(failed(format!(
                "merging an object in json but data type is not struct, instead is: {}",
                self.kind_name(Some(ty))
            ))),
        }
    }

    /// The same for a list, with the type of its elements.
    fn list_field(&self, ty: Option<TypeId>, key: &str) -> Result<Found<'s>> {
        let (field, strategy) = self.field(ty, key)?;
        let Some(field) = field else { return Ok((None, strategy)) };
        match self.schema.shape(field) {
            Shape::Array { items, .. } => Ok((Some(*items), strategy)),
            Shape::Any | Shape::FieldsV1 => Ok((None, strategy)),
            _ => Err(failed(format!("expected slice or array type, but got: {}", self.kind_name(ty)))),
        }
    }

    /// Go's `reflect.Kind` of a type.
    fn kind_name(&self, ty: Option<TypeId>) -> &'static str {
        match ty.map(|ty| self.schema.shape(ty)) {
            None | Some(Shape::Any) => "interface",
            Some(Shape::Boolean) => "bool",
            Some(Shape::Integer { bits: 32 }) => "int32",
            Some(Shape::Integer { .. }) => "int64",
            Some(Shape::Number) => "float64",
            Some(Shape::String) => "string",
            Some(Shape::Array { .. } | Shape::Bytes) => "slice",
            Some(Shape::Map { .. }) => "map",
            Some(_) => "struct",
        }
    }
}

fn merge_key(strategy: Option<&PatchStrategy>) -> Option<&str> {
    strategy.and_then(|s| s.merge_key.as_deref()).filter(|key| !key.is_empty())
}

fn take_list(map: &mut Map<String, Value>, key: &str) -> Result<Option<Vec<Value>>> {
    match map.remove(key) {
        None => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(bad_type("[]interface {}", &other)),
    }
}

/// Clears what `$retainKeys` does not list; the patch itself may set nothing else.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<()> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(Status::bad_request(BAD_RETAIN_KEYS)) };
    let keys: std::collections::HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let listed = |key: &str| keys.contains(key);
    let directive = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !directive(key) && !listed(key)) {
        return Err(Status::bad_request(BAD_RETAIN_KEYS));
    }
    original.retain(|key, _| listed(key));
    Ok(())
}

/// Everything the patch lists must be in the order list, in the same order.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let deleted = |item: &Value| item.get(PATCH).and_then(Value::as_str) == Some("delete");
    let mut rest = order.iter();
    for item in patch {
        if let (Some(_), false) = (merge_key, item.is_object()) {
            return Err(bad_type("map[string]interface {}", item));
        }
        if merge_key.is_some() && deleted(item) || item.get(PATCH).is_some() {
            continue;
        }
        loop {
            let Some(next) = rest.next() else {
                let list = |items: &[Value]| go::plain(&Value::Array(items.to_vec()));
                return Err(failed(format!(
                    "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                    list(patch),
                    list(order)
                )));
            };
            if same_element(item, next, merge_key)? {
                break;
            }
        }
    }
    Ok(())
}

fn same_element(left: &Value, right: &Value, merge_key: Option<&str>) -> Result<bool> {
    let Some(key) = merge_key else { return Ok(left == right) };
    Ok(key_of(left, key)? == key_of(right, key)?)
}

fn key_of<'v>(element: &'v Value, key: &str) -> Result<&'v Value> {
    let Value::Object(map) = element else { return Err(bad_type("map[string]interface {}", element)) };
    map.get(key).ok_or_else(|| no_merge_key(map, key))
}

fn need_keys(list: &[Value], key: &str) -> Result<()> {
    list.iter().try_for_each(|element| key_of(element, key).map(drop))
}

/// Whether these lists, together, are lists of objects. They must be all of one type and no lists of lists.
fn of_objects(lists: &[&[Value]]) -> Result<bool> {
    let mut first: Option<&Value> = None;
    for item in lists.iter().copied().flatten() {
        match first {
            None if item.is_array() => {
                return Err(Status::new(
                    422,
                    "Invalid",
                    "the server rejected our request due to an error in our request",
                )
                .with_causes(Vec::new()));
            }
            None => first = Some(item),
            Some(first) if same_type(first, item) => {}
            Some(_) => {
                let all = Value::Array(lists.iter().map(|l| Value::Array(l.to_vec())).collect());
                return Err(failed(format!("list element types are not identical: {}", go::plain(&all))));
            }
        }
    }
    match first {
        Some(first) => Ok(first.is_object()),
        None => Err(failed("no elements in any of the given slices")),
    }
}

fn same_type(a: &Value, b: &Value) -> bool {
    go::type_name(a) == go::type_name(b)
}

fn set_or_remove(map: &mut Map<String, Value>, key: String, value: Option<Value>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

/// A value that was not there before, as it is kept: `None` if it is nothing but a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => Some(Value::Object(
            map.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?))).collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// Keeps the first of equal scalars. Upstream fills the gap with the last element, and so do we: the order is seen.
fn deduplicate(list: &mut Vec<Value>) {
    let mut seen = std::collections::HashSet::with_capacity(list.len());
    let mut i = 0;
    while i < list.len() {
        if seen.insert(list[i].to_string()) {
            i += 1;
        } else {
            list.swap_remove(i);
        }
    }
}
