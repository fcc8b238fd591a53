//! What evaluating an expression may cost at most, as far as its text and the schema tell.
//!
//! Upstream refuses a definition whose rules may cost too much. It assumes the longest lists, maps and texts that the
//! schema allows, and where it allows any, the longest that fit into a request. The units are those of evaluation.

use std::collections::BTreeMap;

use schema::json_schema::{Additional, Node};

use super::json::escape;
use super::syntax::{Expr, Kind, Macro, MacroName};

/// The largest body of a request, by which what has no bound is bounded after all.
const REQUEST: u64 = 3 << 20;
/// What reading a character of a text costs, and a character of a regular expression.
const TEXT: f64 = 0.1;
const REGEX: f64 = 0.25;
const LIST: u64 = 10;
const MAP: u64 = 30;
const MESSAGE: u64 = 40;
/// Bytes of an address.
const ADDRESS: u64 = 16;
/// How long the regular expressions of named formats are.
const FORMAT: u64 = 128;

/// How large what a schema describes may be.
#[derive(Debug)]
pub struct Bound {
    sort: Sort,
    /// Items, entries or bytes at most.
    most: u64,
    /// Bytes in a request at least.
    least: u64,
    fields: BTreeMap<String, Bound>,
    element: Option<Box<Bound>>,
}

/// What decides which function an operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Text,
    List,
    Map,
    Scalar,
    /// An object with fields.
    Object,
    /// Known only when it is evaluated.
    Any,
}

impl Bound {
    /// `None` where rules cannot reach.
    pub fn of(node: &Node, resource: bool) -> Option<Self> {
        let plain = |sort, most, least| Self { sort, most, least, fields: BTreeMap::new(), element: None };
        let length = |least: u64| match node.checks.max_length {
            Some(most) => unsigned(most).saturating_mul(least),
            None => REQUEST - 2,
        };
        if node.int_or_string {
            return Some(plain(Sort::Any, length(4), 1));
        }
        Some(match &*node.ty {
            "boolean" => plain(Sort::Scalar, 0, 4),
            "integer" | "number" => plain(Sort::Scalar, 0, 1),
            "string" => match &*node.format {
                "byte" => plain(Sort::Text, length(1), 2),
                "duration" => plain(Sort::Scalar, 32, 3),
                "date" => plain(Sort::Scalar, 12, 12),
                "date-time" | "datetime" => plain(Sort::Scalar, 32, 21),
                _ if node.checks.max_length.is_none() && !node.checks.allowed.is_empty() => {
                    let texts = node.checks.allowed.iter().filter_map(|value| value.as_str());
                    plain(Sort::Text, texts.map(str::len).max().unwrap_or(0) as u64, 2)
                }
                _ => plain(Sort::Text, length(4), 2),
            },
            "array" => {
                let items = node.items.as_deref()?;
                let element = Self::of(items, items.embedded)?;
                let most = node.checks.max_items.map_or_else(|| (REQUEST - 2) / (element.least + 1), unsigned);
                Self { element: Some(Box::new(element)), ..plain(Sort::List, most, 2) }
            }
            "object" => match &node.additional {
                Some(Additional::Schema(values)) => {
                    let element = Self::of(values, values.embedded)?;
                    let fit = (REQUEST - 2) / (element.least + 6);
                    let most = node.checks.max_properties.map_or(fit, unsigned);
                    Self { element: Some(Box::new(element)), ..plain(Sort::Map, most, 2) }
                }
                _ => Self::object(node, resource || node.embedded),
            },
            _ => return None,
        })
    }

    fn object(node: &Node, resource: bool) -> Self {
        let text = || Self { sort: Sort::Text, most: REQUEST - 2, least: 2, fields: BTreeMap::new(), element: None };
        let required: std::collections::HashSet<&str> = node.required.iter().map(|name| &**name).collect();
        let mut bound = Self { sort: Sort::Object, most: 0, least: 2, fields: BTreeMap::new(), element: None };
        for (name, child) in &node.properties {
            let Some(field) = Self::of(child, child.embedded) else { continue };
            if required.contains(&**name) && child.default.is_none() {
                bound.least += name.len() as u64 + field.least + 4;
            }
            if let Some(name) = escape(name) {
                bound.fields.insert(name, field);
            }
        }
        if resource {
            let metadata = Self {
                sort: Sort::Object,
                most: 0,
                least: 2,
                fields: ["name", "generateName"].into_iter().map(|name| (name.to_owned(), text())).collect(),
                element: None,
            };
            for name in ["apiVersion", "kind"] {
                bound.fields.entry(name.to_owned()).or_insert_with(text);
            }
            bound.fields.entry("metadata".to_owned()).or_insert(metadata);
        }
        bound
    }

    /// How often what it describes fits into a request.
    pub fn repetitions(&self) -> u64 {
        REQUEST / (self.least + 1)
    }

    pub fn field(&self, name: &str) -> Option<&Bound> {
        self.fields.get(name).or_else(|| self.fields.get(&format!("__{name}__")))
    }

    pub fn property(&self, name: &str) -> Option<&Bound> {
        self.fields.get(&escape(name)?)
    }

    pub fn element(&self) -> Option<&Bound> {
        self.element.as_deref()
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// What evaluating an expression may cost where `self` is bounded like this.
pub fn estimate(expr: &Expr, itself: &Bound) -> u64 {
    Estimator { itself, names: Vec::new() }.of(expr).cost
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    least: u64,
    most: u64,
}

const UNKNOWN: Size = Size { least: 0, most: u64::MAX };
const ONE: Size = Size { least: 1, most: 1 };

impl Size {
    fn exactly(size: usize) -> Self {
        Self { least: size as u64, most: size as u64 }
    }

    fn or(self, other: Self) -> Self {
        Self { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    fn plus(self, other: Self) -> Self {
        Self { least: self.least.saturating_add(other.least), most: self.most.saturating_add(other.most) }
    }

    fn times(self, other: Self) -> Self {
        Self { least: self.least.saturating_mul(other.least), most: self.most.saturating_mul(other.most) }
    }

    /// The cost of reading all of it.
    fn read(self, factor: f64) -> u64 {
        read(self.most, factor)
    }
}

fn read(size: u64, factor: f64) -> u64 {
    // A float that is too large becomes the largest number.
    (size as f64 * factor).ceil() as u64
}

/// What is known of a part of an expression.
#[derive(Clone, Debug)]
struct Part<'b> {
    cost: u64,
    sort: Sort,
    /// Of what is computed; what is read from the object has the size of its bound.
    size: Option<Size>,
    /// Where in the schema it is described.
    bound: Option<&'b Bound>,
    /// The elements of what was computed.
    element: Option<(Sort, Size)>,
}

impl<'b> Part<'b> {
    fn new(cost: u64, sort: Sort, size: Option<Size>) -> Self {
        Self { cost, sort, size, bound: None, element: None }
    }

    fn at(cost: u64, bound: &'b Bound) -> Self {
        Self { cost, sort: bound.sort, size: None, bound: Some(bound), element: None }
    }

    fn size(&self) -> Size {
        match (self.size, self.bound, self.sort) {
            (Some(size), ..) => size,
            (None, Some(bound), _) => Size { least: 0, most: bound.most },
            (None, None, Sort::Scalar) => ONE,
            _ => UNKNOWN,
        }
    }

    /// One of its elements, without a cost.
    fn element(&self) -> Part<'b> {
        match (self.bound.and_then(Bound::element), self.element) {
            (Some(bound), _) => Part::at(0, bound),
            (None, Some((sort, size))) => Part::new(0, sort, Some(size)),
            (None, None) => Part::new(0, Sort::Any, None),
        }
    }

    /// What a macro with one name binds it to: an item of a list, a key of a map.
    fn each(&self) -> Part<'b> {
        match self.sort {
            // Upstream does not count the length of keys.
            Sort::Map => Part::new(0, Sort::Text, Some(Size { least: 0, most: 0 })),
            _ => self.element(),
        }
    }
}

struct Estimator<'b> {
    itself: &'b Bound,
    /// Names that macros bind, innermost last.
    names: Vec<(String, Part<'b>)>,
}

fn sum(parts: &[Part<'_>]) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.cost))
}

impl<'b> Estimator<'b> {
    fn of(&mut self, expr: &Expr) -> Part<'b> {
        match &expr.kind {
            Kind::Null | Kind::Bool(_) | Kind::Int(_) | Kind::Uint(_) | Kind::Double(_) => {
                Part::new(0, Sort::Scalar, Some(ONE))
            }
            Kind::Text(text) => Part::new(0, Sort::Text, Some(Size::exactly(text.chars().count()))),
            Kind::Bytes(bytes) => Part::new(0, Sort::Text, Some(Size::exactly(bytes.len()))),
            Kind::Ident(name) => self.name(name),
            Kind::Select { of, field, optional } => {
                let of = self.of(of);
                let cost = of.cost.saturating_add(1);
                if of.sort == Sort::Map && !optional {
                    // Upstream does not look up how long a value is that is read from a map by a dot.
                    return Part::new(cost, of.element().sort, None);
                }
                // An optional value has no place in the schema.
                match of.bound.and_then(|bound| bound.field(field)).filter(|_| !optional) {
                    Some(bound) => Part::at(cost, bound),
                    None => Part::new(cost, Sort::Any, None),
                }
            }
            // Looking whether something is there costs nothing beside getting there.
            Kind::Has { of, .. } => Part::new(self.of(of).cost, Sort::Scalar, Some(ONE)),
            Kind::Index { of, by, optional } => {
                let (of, by) = (self.of(of), self.of(by));
                let cost = of.cost.saturating_add(by.cost).saturating_add(1);
                if *optional { Part::new(cost, Sort::Any, None) } else { Part { cost, ..of.element() } }
            }
            Kind::And(a, b) | Kind::Or(a, b) => {
                let parts = [self.of(a), self.of(b)];
                Part::new(sum(&parts), Sort::Scalar, Some(ONE))
            }
            Kind::If(parts) => {
                let [condition, yes, no] = &**parts;
                let (condition, yes, no) = (self.of(condition), self.of(yes), self.of(no));
                let cost = condition.cost.saturating_add(yes.cost.max(no.cost));
                let sort = if yes.sort == no.sort { yes.sort } else { Sort::Any };
                let element = match (yes.element, no.element) {
                    (Some((a, x)), Some((b, y))) => Some((if a == b { a } else { Sort::Any }, x.or(y))),
                    _ => None,
                };
                Part { element, ..Part::new(cost, sort, Some(yes.size().or(no.size()))) }
            }
            Kind::List(items) => {
                let parts: Vec<Part<'b>> = items.iter().map(|(item, _)| self.of(item)).collect();
                let element = together(&parts);
                let size = Size::exactly(items.len());
                Part { element, ..Part::new(sum(&parts).saturating_add(LIST), Sort::List, Some(size)) }
            }
            Kind::Map(entries) | Kind::Message(_, entries) => {
                let parts: Vec<Part<'b>> = entries.iter().flat_map(|(k, v, _)| [self.of(k), self.of(v)]).collect();
                let values: Vec<Part<'b>> = parts.iter().skip(1).step_by(2).cloned().collect();
                let size = Size::exactly(entries.len());
                let base = if matches!(expr.kind, Kind::Map(_)) { MAP } else { MESSAGE };
                let cost = sum(&parts).saturating_add(base);
                Part { element: together(&values), ..Part::new(cost, Sort::Map, Some(size)) }
            }
            Kind::Call { target, name, args } => self.call(target.as_deref(), name, args),
            Kind::Macro(call) => self.expand(call),
        }
    }

    fn name(&self, name: &str) -> Part<'b> {
        if let Some((_, part)) = self.names.iter().rev().find(|(known, _)| known == name) {
            return Part { cost: 1, ..part.clone() };
        }
        match name {
            "self" | "oldSelf" => Part::at(1, self.itself),
            // The name of a type: upstream takes it for as large as `self`.
            _ => Part::new(1, Sort::Any, Some(Size { least: 0, most: self.itself.most })),
        }
    }

    fn call(&mut self, target: Option<&Expr>, name: &str, args: &[Expr]) -> Part<'b> {
        let args: Vec<Part<'b>> = args.iter().map(|arg| self.of(arg)).collect();
        // A prefix such as that of `math.greatest` is no value.
        let prefix = matches!(target, Some(Expr { kind: Kind::Ident(name), .. })
            if name != "self" && name != "oldSelf" && self.names.iter().all(|(known, _)| known != name));
        let target = target.filter(|_| !prefix).map(|target| self.of(target));
        let before = sum(&args).saturating_add(target.as_ref().map_or(0, |target| target.cost));
        let mut made = function(name, target.as_ref(), &args);
        made.cost = made.cost.saturating_add(before);
        made
    }

    fn expand(&mut self, call: &Macro) -> Part<'b> {
        let over = self.of(&call.over);
        let depth = self.names.len();
        let (first, second) = match (call.name, &call.second) {
            (MacroName::Bind, _) => (over.clone(), None),
            (MacroName::OptMap | MacroName::OptFlatMap, _) => (Part::new(0, Sort::Any, None), None),
            (_, Some(name)) if over.sort == Sort::List => {
                (Part::new(0, Sort::Scalar, Some(ONE)), Some((name.clone(), over.element())))
            }
            (_, Some(name)) => (over.each(), Some((name.clone(), over.element()))),
            (_, None) => (over.each(), None),
        };
        self.names.push((call.first.clone(), Part { cost: 0, ..first.clone() }));
        self.names.extend(second);
        let bodies: Vec<Part<'b>> = call.bodies.iter().map(|body| self.of(body)).collect();
        self.names.truncate(depth);
        let nothing = Part::new(0, Sort::Any, None);
        let last = bodies.last().unwrap_or(&nothing);
        let condition = if bodies.len() > 1 { bodies[0].cost } else { 0 };
        let times = over.size();
        let repeat = |begin: u64, step: u64, end: u64| {
            over.cost.saturating_add(begin).saturating_add(times.most.saturating_mul(step)).saturating_add(end)
        };
        let truth = |cost: u64| Part::new(cost, Sort::Scalar, Some(ONE));
        let element = |part: &Part<'b>| Some((part.sort, Size { least: 0, ..part.size() }));
        match call.name {
            MacroName::All => truth(repeat(0, last.cost.saturating_add(3), 1)),
            MacroName::Exists => truth(repeat(0, last.cost.saturating_add(4), 1)),
            MacroName::ExistsOne => truth(repeat(0, last.cost.saturating_add(2), 2)),
            MacroName::Filter => {
                let cost = repeat(LIST, last.cost.saturating_add(13), 1);
                Part { element: element(&first), ..Part::new(cost, Sort::List, Some(times)) }
            }
            MacroName::Map | MacroName::TransformList | MacroName::SortBy => {
                let step = last.cost.saturating_add(12).saturating_add(condition);
                Part { element: element(last), ..Part::new(repeat(LIST, step, 1), Sort::List, Some(times)) }
            }
            MacroName::TransformMap | MacroName::TransformMapEntry => {
                let step = last.cost.saturating_add(3).saturating_add(condition);
                Part { element: element(last), ..Part::new(repeat(MAP, step, 1), Sort::Map, Some(times)) }
            }
            MacroName::Bind => {
                let cost = over.cost.saturating_add(LIST).saturating_add(last.cost);
                Part { cost, ..last.clone() }
            }
            MacroName::OptMap | MacroName::OptFlatMap => {
                Part::new(over.cost.saturating_add(last.cost).saturating_add(LIST + 4), Sort::Any, None)
            }
        }
    }
}

/// What the elements of a list or map that is written out have in common.
fn together(parts: &[Part<'_>]) -> Option<(Sort, Size)> {
    let Some(first) = parts.first() else { return Some((Sort::Any, Size { least: 0, most: 0 })) };
    let sort = if parts.iter().all(|part| part.sort == first.sort) { first.sort } else { Sort::Any };
    Some((sort, parts.iter().fold(first.size(), |size, part| size.or(part.size()))))
}

/// What a function costs, without its arguments.
fn function<'b>(name: &str, target: Option<&Part<'b>>, args: &[Part<'b>]) -> Part<'b> {
    let truth = |cost: u64| Part::new(cost, Sort::Scalar, Some(ONE));
    let text = |cost: u64, size: Size| Part::new(cost, Sort::Text, Some(size));
    match (name, target, args) {
        ("_==_" | "_!=_", _, [a, b]) => truth(read(a.size().most.min(b.size().most), TEXT)),
        ("_<_" | "_<=_" | "_>_" | "_>=_", _, [a, b]) => match (a.sort, b.sort) {
            (Sort::Scalar, _) | (_, Sort::Scalar) => truth(1),
            _ => truth(read(a.size().most.min(b.size().most), TEXT).max(1)),
        },
        ("_+_", _, [a, b]) => {
            let size = a.size().plus(b.size());
            match (a.sort, b.sort) {
                (Sort::Scalar, _) | (_, Sort::Scalar) => truth(1),
                (Sort::List, _) | (_, Sort::List) => {
                    let (x, y) = (a.element(), b.element());
                    let sort = if x.sort == y.sort { x.sort } else { Sort::Any };
                    Part { element: Some((sort, x.size().or(y.size()))), ..Part::new(1, Sort::List, Some(size)) }
                }
                _ => text(size.read(TEXT), size),
            }
        }
        ("@in", _, [_, of]) => match of.sort {
            Sort::Map => truth(1),
            _ => truth(of.size().read(1.0).max(1)),
        },
        ("startsWith" | "endsWith", Some(_), [part]) => truth(part.size().read(TEXT)),
        ("contains", Some(of), [part]) => truth(of.size().read(TEXT).saturating_mul(part.size().read(TEXT))),
        ("matches" | "find" | "findAll", of, _) => {
            let (of, regex) = match (of, args) {
                (Some(of), [regex, ..]) => (of, regex),
                (None, [of, regex]) => (of, regex),
                _ => return truth(1),
            };
            let cost = of.size().plus(ONE).read(TEXT).saturating_mul(regex.size().read(REGEX));
            let size = Size { least: 0, most: of.size().most };
            match name {
                "matches" => truth(cost),
                "find" => text(cost, size),
                _ => Part { element: Some((Sort::Text, UNKNOWN)), ..Part::new(cost, Sort::List, Some(size)) },
            }
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(of), _) => match of.sort {
            Sort::Text => truth(of.size().read(TEXT)),
            _ => {
                let element = of.element();
                let each = if element.sort == Sort::Text { element.size().read(TEXT) } else { 0 };
                let cost = of.size().most.saturating_mul(each.saturating_add(1));
                match name {
                    "max" | "min" => Part { cost, ..element },
                    _ => truth(cost),
                }
            }
        },
        ("url", _, [of]) => Part::new(of.size().read(TEXT), Sort::Any, Some(of.size())),
        ("isIP" | "isCIDR" | "isQuantity" | "isSemver", None, [of, ..]) => truth(of.size().read(TEXT)),
        // Two of what is read are compared at once.
        ("ip" | "cidr" | "quantity" | "semver", None, [of, ..]) => {
            Part::new(of.size().read(TEXT), Sort::Any, Some(ONE))
        }
        ("isCanonical", None, [of]) => truth(of.size().read(2.0 * TEXT)),
        // Addresses have 16 bytes at most, and those that are written as texts are read first.
        ("containsIP" | "containsCIDR", Some(_), [of]) => {
            let compared = read(2 * ADDRESS, TEXT);
            let masked = if name == "containsCIDR" { read(ADDRESS, TEXT) + 1 } else { 0 };
            let text = if of.sort == Sort::Text { of.size().read(TEXT) } else { 0 };
            truth(text.saturating_add(compared + masked))
        }
        ("validate", Some(_), [of]) => Part::new(read(of.size().read(TEXT), FORMAT as f64 * REGEX), Sort::Any, None),
        ("escapeKey", None, [of]) => text(of.size().read(TEXT), of.size()),
        ("quote", None, [of]) => {
            let (least, most) = (of.size().least.saturating_add(2), of.size().most.saturating_mul(2).saturating_add(2));
            text(of.size().read(TEXT), Size { least, most })
        }
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(of), _) => text(of.size().read(TEXT), of.size()),
        ("replace", Some(of), [what, by, ..]) => {
            text(of.size().read(2.0 * TEXT), replaced(of.size(), what.size(), by.size()))
        }
        ("split", Some(of), _) => {
            let size = Size { least: 0, most: of.size().most };
            Part {
                element: Some((Sort::Text, UNKNOWN)),
                ..Part::new(of.size().read(2.0 * TEXT), Sort::List, Some(size))
            }
        }
        ("join", Some(of), _) => {
            let items = of.size();
            let between = Size { least: items.least.saturating_sub(1), most: items.most.saturating_sub(1) };
            let between = args.first().map_or(Size { least: 0, most: 0 }, |by| by.size().times(between));
            let size = items.times(of.element().size()).plus(between);
            text(size.read(TEXT), size)
        }
        ("format", Some(of), _) => text(of.size().read(TEXT), UNKNOWN),
        ("bytes", None, [of]) if of.sort == Sort::Text => {
            let size = Size { most: of.size().most.saturating_mul(4), ..of.size() };
            text(of.size().read(TEXT), size)
        }
        ("dyn", None, [of]) => Part { cost: 1, ..of.clone() },
        ("string" | "bytes", None, _) => Part::new(1, Sort::Text, None),
        ("size" | "int" | "uint" | "double" | "bool" | "duration" | "timestamp" | "!_", ..) => truth(1),
        // Numbers, times, addresses, quantities.
        (operator, _, [a, b]) if operator.starts_with('_') => {
            let scalar = a.sort == Sort::Scalar || b.sort == Sort::Scalar;
            Part::new(1, if scalar { Sort::Scalar } else { Sort::Any }, scalar.then_some(ONE))
        }
        _ => Part::new(1, Sort::Any, None),
    }
}

/// How long a text may be in which something was replaced.
fn replaced(of: Size, what: Size, by: Size) -> Size {
    let (times, kept) = if what.least == 0 {
        (of.most.saturating_add(1), of.most)
    } else if by.most <= what.least {
        (0, of.most)
    } else {
        (of.most.div_ceil(what.least), 0)
    };
    Size { least: 0, most: times.saturating_mul(by.most).saturating_add(kept) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Expression;

    fn cost(schema: &Value, rule: &str) -> u64 {
        let node = Node::compile(schema);
        Expression::parse(rule).unwrap().most(&Bound::of(&node, false).unwrap())
    }

    #[test]
    fn costs_are_those_of_upstream() {
        let object = |fields: Value| json!({"type": "object", "properties": fields});
        let ints = object(json!({"a": {"type": "integer"}, "b": {"type": "integer"}}));
        assert_eq!(cost(&ints, "self.a == 5"), 2);
        assert_eq!(cost(&ints, "self.a < self.b"), 5);
        assert_eq!(cost(&ints, "has(self.a) && self.a > 1"), 4);
        let list = |most: u64, length: u64| {
            object(json!({"l": {"type": "array", "maxItems": most, "items": {"type": "string", "maxLength": length}}}))
        };
        // Two for the list, one for the result; of each item: three for the loop, one for its name, and the search.
        assert_eq!(cost(&list(25, 63), "self.l.all(x, x.contains('gpu'))"), 2 + 1 + 25 * (3 + 1 + 26));
        assert_eq!(cost(&list(10, 5), "self.l.all(x, self.l.exists(y, x == y))"), 3 + 10 * (3 + 3 + 10 * (4 + 4)));
        // An unbounded list of numbers, each of at least one byte and a comma.
        let numbers = object(json!({"l": {"type": "array", "items": {"type": "integer"}}}));
        assert_eq!(cost(&numbers, "self.l.all(x, x == 5)"), 3 + 1_572_863 * 4);
        let text = object(json!({"t": {"type": "string"}}));
        assert_eq!(cost(&text, "self.t.matches('abcd')"), 2 + 314_573);
        assert_eq!(cost(&text, "self.t in ['a', 'b']"), 2 + LIST + 2);
        let either = json!({"x-kubernetes-int-or-string": true});
        assert_eq!(cost(&either, "type(self) == string ? self.matches('abcd') : self > 0"), 3 + 314_573 + 1 + 314_573);
        let word = object(json!({"t": {"type": "string", "enum": ["one", "three"]}}));
        assert_eq!(cost(&word, "self.t.startsWith(self.t)"), 4 + 1);
    }

    #[test]
    fn what_has_no_bound_is_as_long_as_a_request() {
        let nested = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object", "required": ["k"],
            "properties": {"k": {"type": "array", "items": {"type": "string"}}}}}}});
        assert!(cost(&nested, "self.l.all(x, x.k.all(y, y.contains('a')))") > 1_000_000_000_000);
        assert_eq!(cost(&nested, "self.l.map(x, x.k).exists(k, k.size() > 1)"), 2 + LIST + 2 + 314_572 * (14 + 7));
        let map = json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 3});
        assert_eq!(cost(&map, "self.all(k, self[k] == 'a')"), 1 + 1 + 3 * (3 + 3 + 1));
    }
}
