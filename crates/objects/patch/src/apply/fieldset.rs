//! Sets of fields, as `fieldsV1` writes them, and their algebra.
//!
//! A set is a tree of sorted nodes. A node is a member of the set itself, or leads to members below, or both.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::element::PathElement;
use super::typed::Ty;

/// A set of field paths. The empty path, the object as a whole, is never in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet<'a> {
    /// Sorted; each node is a member or has children.
    nodes: Vec<Node<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node<'a> {
    element: PathElement<'a>,
    member: bool,
    below: FieldSet<'a>,
}

impl<'a> FieldSet<'a> {
    pub const fn new() -> Self {
        Self { nodes: Vec::new() }
    }

    /// A set of plain field paths, for example `["status"]` and `["metadata", "labels"]`.
    pub fn of_fields(paths: &[&[&'a str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<_> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn position(&self, element: &PathElement<'_>) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    pub fn insert(&mut self, path: &[PathElement<'a>]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = self.position(first).unwrap_or_else(|at| {
            self.nodes.insert(at, Node { element: first.clone(), member: false, below: Self::new() });
            at
        });
        if rest.is_empty() {
            self.nodes[at].member = true;
        } else {
            self.nodes[at].below.insert(rest);
        }
    }

    /// Adds a node that stands behind all others, unless it would be empty.
    pub(super) fn push(&mut self, element: PathElement<'a>, member: bool, below: FieldSet<'a>) {
        if member || !below.is_empty() {
            self.nodes.push(Node { element, member, below });
        }
    }

    /// Makes the set of pushed nodes whole when they were not pushed in order.
    pub(super) fn sort(&mut self) {
        if !self.nodes.is_sorted_by(|a, b| a.element < b.element) {
            let mut nodes = std::mem::take(&mut self.nodes);
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            for node in nodes {
                match self.nodes.last_mut() {
                    Some(last) if last.element == node.element => {
                        last.member |= node.member;
                        last.below = std::mem::take(&mut last.below).union(node.below);
                    }
                    _ => self.nodes.push(node),
                }
            }
        }
    }

    pub fn has(&self, path: &[PathElement<'_>]) -> bool {
        match path {
            [] => false,
            [last] => self.has_member(last),
            [first, rest @ ..] => self.below(first).is_some_and(|below| below.has(rest)),
        }
    }

    pub(super) fn has_member(&self, element: &PathElement<'_>) -> bool {
        self.position(element).is_ok_and(|at| self.nodes[at].member)
    }

    /// The paths that start with `element`, without it.
    pub(super) fn below(&self, element: &PathElement<'_>) -> Option<&FieldSet<'a>> {
        self.position(element).ok().map(|at| &self.nodes[at].below).filter(|below| !below.is_empty())
    }

    /// All nodes: element, whether it is a member, and what is below.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&PathElement<'a>, bool, &FieldSet<'a>)> {
        self.nodes.iter().map(|node| (&node.element, node.member, &node.below))
    }

    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut out = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut left, mut right) = (self.nodes.into_iter().peekable(), other.nodes.into_iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            match a.element.cmp(&b.element) {
                Ordering::Less => out.extend(left.next()),
                Ordering::Greater => out.extend(right.next()),
                Ordering::Equal => {
                    if let (Some(a), Some(b)) = (left.next(), right.next()) {
                        out.push(Node {
                            element: a.element,
                            member: a.member || b.member,
                            below: a.below.union(b.below),
                        });
                    }
                }
            }
        }
        out.extend(left);
        out.extend(right);
        Self { nodes: out }
    }

    /// The union of many sets, made in pairs: one after the other would walk over all that came before for each.
    pub fn union_all(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            let mut pairs = sets.into_iter();
            let mut joined = Vec::with_capacity(pairs.len().div_ceil(2));
            while let Some(first) = pairs.next() {
                joined.push(match pairs.next() {
                    Some(second) => first.union(second),
                    None => first,
                });
            }
            sets = joined;
        }
        sets.pop().unwrap_or_default()
    }

    pub fn intersection(&self, other: &FieldSet<'_>) -> Self {
        let mut out = Self::new();
        let mut right = other.nodes.as_slice();
        for node in &self.nodes {
            right = from(right, &node.element);
            if let Some(r) = right.first().filter(|r| r.element == node.element) {
                let below = node.below.intersection(&r.below);
                out.push(node.element.clone(), node.member && r.member, below);
            }
        }
        out
    }

    /// Removes every path that is in `other`. Says whether there was one.
    pub fn subtract(&mut self, other: &FieldSet<'_>) -> bool {
        self.subtract_with(other, false)
    }

    /// Removes every path that is in `other` with all that is below it.
    pub fn subtract_deep(&mut self, other: &FieldSet<'_>) -> bool {
        self.subtract_with(other, true)
    }

    fn subtract_with(&mut self, other: &FieldSet<'_>, deep: bool) -> bool {
        if other.is_empty() {
            return false;
        }
        let mut changed = false;
        let mut right = other.nodes.as_slice();
        self.nodes.retain_mut(|node| {
            right = from(right, &node.element);
            let Some(r) = right.first().filter(|r| r.element == node.element) else { return true };
            if r.member && (deep || node.member) {
                changed = true;
                node.member = false;
                if deep {
                    return false;
                }
            }
            changed |= node.below.subtract_with(&r.below, deep);
            node.member || !node.below.is_empty()
        });
        changed
    }

    /// The set with every declared field that leads to a member made a member too.
    pub(super) fn with_named_fields(&self, ty: Option<Ty<'_>>) -> Self {
        let nodes = self
            .nodes
            .iter()
            .map(|node| {
                let declared = ty.is_some_and(|ty| ty.declares(&node.element));
                Node {
                    element: node.element.clone(),
                    member: node.member || (declared && !node.below.is_empty()),
                    below: node.below.with_named_fields(ty.and_then(|ty| ty.step(&node.element))),
                }
            })
            .collect();
        Self { nodes }
    }

    /// Every path, the members of each level before what is below it, as upstream lists them.
    pub fn paths(&self) -> Vec<Vec<PathElement<'a>>> {
        let mut out = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut out);
        out
    }

    fn collect_paths(&self, prefix: &mut Vec<PathElement<'a>>, out: &mut Vec<Vec<PathElement<'a>>>) {
        for node in self.nodes.iter().filter(|node| node.member) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            out.push(path);
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.below.collect_paths(prefix, out);
            prefix.pop();
        }
    }

    pub fn into_owned(self) -> FieldSet<'static> {
        let nodes = self.nodes.into_iter().map(|node| Node {
            element: node.element.into_owned(),
            member: node.member,
            below: node.below.into_owned(),
        });
        FieldSet { nodes: nodes.collect() }
    }

    /// The `fieldsV1` object.
    pub fn to_value(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    fn to_map(&self, member: bool) -> Map<String, Value> {
        let mut map = Map::new();
        if member && !self.nodes.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            map.insert(node.element.serialize(), Value::Object(node.below.to_map(node.member)));
        }
        map
    }

    /// Reads a `fieldsV1` object.
    pub fn from_value(value: &'a Value) -> Result<Self, String> {
        match value {
            Value::Object(map) => Self::from_map(map).map(|(_, set)| set),
            _ => Err("expected an object".to_owned()),
        }
    }

    fn from_map(map: &'a Map<String, Value>) -> Result<(bool, Self), String> {
        let mut set = Self { nodes: Vec::with_capacity(map.len()) };
        let mut own = false;
        for (name, value) in map {
            if name == "." {
                own = true;
                continue;
            }
            let Some(element) = PathElement::parse(name)? else { continue };
            let (member, below) = match value {
                Value::Object(map) => Self::from_map(map)?,
                Value::Null => (true, Self::new()),
                _ => return Err(format!("expected an object at {name}")),
            };
            set.push(element, member, below);
        }
        set.sort();
        Ok((own || set.is_empty(), set))
    }
}

/// The nodes from the first one that is not before `element`. The steps double, so that a few elements are found
/// quickly among many, and neighbours at once.
fn from<'n, 'a>(nodes: &'n [Node<'a>], element: &PathElement<'_>) -> &'n [Node<'a>] {
    let before = |node: &Node<'_>| node.element.cmp(element) == Ordering::Less;
    let mut reach = 1;
    while nodes.get(reach - 1).is_some_and(before) {
        reach *= 2;
    }
    let start = reach / 2;
    let known = &nodes[start..reach.min(nodes.len())];
    &nodes[start + known.partition_point(before)..]
}

/// A field path as messages show it: `.spec.containers[name="c"].image`.
pub fn show(path: &[PathElement<'_>]) -> String {
    path.iter().map(ToString::to_string).collect()
}
