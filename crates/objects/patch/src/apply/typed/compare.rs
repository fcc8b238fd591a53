//! What changed between two objects.

use serde_json::Value;

use super::{Atom, Comparison, Fields, Ty, list_element, list_of, map_of};
use crate::apply::element::{PathElement, same};
use crate::apply::fieldset::FieldSet;

/// A comparison of two values: whether the place itself is in each set, and what is below it.
#[derive(Default)]
struct Found<'v> {
    removed: bool,
    modified: bool,
    added: bool,
    below: Comparison<'v>,
}

impl<'v> Ty<'v> {
    pub(crate) fn compare(self, old: &'v Value, new: &'v Value) -> Comparison<'v> {
        self.compare_at(Some(old), Some(new)).below
    }

    fn compare_at(self, old: Option<&'v Value>, new: Option<&'v Value>) -> Found<'v> {
        let mut found = Found::default();
        let leaf = match (old, new) {
            (_, None) => self.compare_as(self.atom(old), old, new, &mut found),
            (None, _) => self.compare_as(self.atom(new), old, new, &mut found),
            _ => {
                let (was, is) = (self.atom(old), self.atom(new));
                // Only a value of no declared type can change from a map to a list or a scalar; it is compared as both.
                if !was.same_kind(&is) && !old.is_some_and(Value::is_null) && !new.is_some_and(Value::is_null) {
                    self.compare_as(was, old, new, &mut found);
                }
                let by = if new.is_some_and(Value::is_null) { was } else { is };
                self.compare_as(by, old, new, &mut found)
            }
        };
        if !leaf {
            found.added |= old.is_none();
            found.removed |= new.is_none();
        }
        found
    }

    /// Says whether the place was compared as a leaf.
    fn compare_as(self, atom: Atom<'v>, old: Option<&'v Value>, new: Option<&'v Value>, found: &mut Found<'v>) -> bool {
        match atom {
            Atom::Map(fields) if !fields.atomic => {
                let (was, is) = (map_of(old), map_of(new));
                if was.is_none_or(|m| m.is_empty()) && is.is_none_or(|m| m.is_empty()) {
                    found.leaf(old, new);
                    return true;
                }
                compare_maps(fields, old, new, &mut found.below);
                false
            }
            Atom::List(items, keys) => {
                let (was, is) = (list_of(old).unwrap_or_default(), list_of(new).unwrap_or_default());
                if was.is_empty() && is.is_empty() {
                    found.leaf(old, new);
                    return true;
                }
                compare_lists(items, keys, was, is, &mut found.below);
                false
            }
            _ => {
                found.leaf(old, new);
                true
            }
        }
    }
}

impl<'v> Found<'v> {
    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.added = true,
            (_, None) => self.removed = true,
            (Some(old), Some(new)) => self.modified |= !same(old, new),
        }
    }
}

impl<'v> Comparison<'v> {
    fn push(&mut self, element: PathElement<'v>, found: Found<'v>) {
        let clone = |set: &FieldSet<'_>, member: bool| (member || !set.is_empty()).then(|| element.clone());
        if let Some(element) = clone(&found.below.removed, found.removed) {
            self.removed.push(element, found.removed, found.below.removed);
        }
        if let Some(element) = clone(&found.below.modified, found.modified) {
            self.modified.push(element, found.modified, found.below.modified);
        }
        self.added.push(element, found.added, found.below.added);
    }
}

fn compare_maps<'v>(fields: Fields<'v>, old: Option<&'v Value>, new: Option<&'v Value>, out: &mut Comparison<'v>) {
    let mut left = map_of(old).into_iter().flatten().peekable();
    let mut right = map_of(new).into_iter().flatten().peekable();
    loop {
        let (name, was, is) = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(l), Some(r)) if l.0 == r.0 => (l.0, left.next(), right.next()),
            (Some(l), Some(r)) if l.0 < r.0 => (l.0, left.next(), None),
            (Some(l), None) => (l.0, left.next(), None),
            (_, Some(r)) => (r.0, None, right.next()),
        };
        let ty = fields.ty(name).unwrap_or_else(|| Ty::deduced(fields.schema));
        out.push(PathElement::field(name), ty.compare_at(was.map(|e| e.1), is.map(|e| e.1)));
    }
}

/// Elements that a list has more than once are compared together, as if they were one leaf.
fn compare_lists<'v>(
    items: Ty<'v>,
    keys: &'v [Box<str>],
    old: &'v [Value],
    new: &'v [Value],
    out: &mut Comparison<'v>,
) {
    let index = |list: &'v [Value]| {
        let mut elements: Vec<(PathElement<'v>, &'v Value)> =
            list.iter().filter_map(|v| Some((list_element(items, keys, v).ok()?, v))).collect();
        elements.sort_by(|a, b| a.0.cmp(&b.0));
        elements.into_iter().peekable()
    };
    let (mut left, mut right) = (index(old), index(new));
    loop {
        let element = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some((l, _)), Some((r, _))) => l.min(r).clone(),
            (Some((l, _)), None) => l.clone(),
            (None, Some((r, _))) => r.clone(),
        };
        let mut was = Vec::new();
        while let Some((_, value)) = left.next_if(|(l, _)| *l == element) {
            was.push(value);
        }
        let mut is = Vec::new();
        while let Some((_, value)) = right.next_if(|(r, _)| *r == element) {
            is.push(value);
        }
        let found = match (was.as_slice(), is.as_slice()) {
            ([] | [_], [] | [_]) => items.compare_at(was.first().copied(), is.first().copied()),
            ([_, _, ..], [_, _, ..]) => {
                let equal = was.len() == is.len() && was.iter().zip(&is).all(|(a, b)| same(a, b));
                Found { modified: !equal, ..Found::default() }
            }
            ([_, _, ..], [one]) => Found { removed: true, ..items.compare_at(None, Some(one)) },
            ([one], _) => Found { added: true, ..items.compare_at(Some(one), None) },
            ([_, _, ..], []) => Found { removed: true, ..Found::default() },
            ([], _) => Found { added: true, ..Found::default() },
        };
        out.push(element, found);
    }
}
