//! The syntax tree of an expression. Every part knows where it was written, for messages.

use std::sync::Arc;

use super::Problem;

#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Offset in characters, where upstream points at when this part is wrong.
    pub at: usize,
    /// How many parts the longest way down goes through, this one included.
    depth: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Ident(String),
    /// `a.b`, `a.?b`.
    Select {
        of: Box<Expr>,
        field: String,
        optional: bool,
    },
    /// `has(a.b)`.
    Has {
        of: Box<Expr>,
        field: String,
    },
    /// `a[b]`, `a[?b]`.
    Index {
        of: Box<Expr>,
        by: Box<Expr>,
        optional: bool,
    },
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    If(Box<[Expr; 3]>),
    /// Operators are calls too, by upstream's names for them: `_+_`, `!_`.
    Call {
        target: Option<Box<Expr>>,
        name: String,
        args: Vec<Expr>,
    },
    /// Elements, and whether each is optional (`?x`).
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    /// `Object.spec{replicas: 1}`: the name of its type, and its fields as entries of a map.
    Message(String, Vec<(Expr, Expr, bool)>),
    Macro(Box<Macro>),
}

/// A call that binds names: its last arguments are evaluated with them, many times.
#[derive(Clone, Debug, PartialEq)]
pub struct Macro {
    pub name: MacroName,
    pub over: Expr,
    pub first: String,
    pub second: Option<String>,
    /// The conditions and transformations, in the order they were written.
    pub bodies: Vec<Expr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacroName {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformList,
    TransformMap,
    TransformMapEntry,
    SortBy,
    /// `cel.bind(x, value, body)`: `over` is the value.
    Bind,
    OptMap,
    OptFlatMap,
}

impl MacroName {
    /// The macro that a call is, by its name and how many arguments it has after the names it binds.
    pub fn find(name: &str, args: usize) -> Option<(Self, usize)> {
        Some(match (name, args) {
            ("all", 2) => (Self::All, 1),
            ("all", 3) => (Self::All, 2),
            ("exists", 2) => (Self::Exists, 1),
            ("exists", 3) => (Self::Exists, 2),
            ("exists_one" | "existsOne", 2) => (Self::ExistsOne, 1),
            ("exists_one" | "existsOne", 3) => (Self::ExistsOne, 2),
            ("map", 2 | 3) => (Self::Map, 1),
            ("filter", 2) => (Self::Filter, 1),
            ("transformList", 3 | 4) => (Self::TransformList, 2),
            ("transformMap", 3 | 4) => (Self::TransformMap, 2),
            ("transformMapEntry", 3 | 4) => (Self::TransformMapEntry, 2),
            ("sortBy", 2) => (Self::SortBy, 1),
            ("optMap", 2) => (Self::OptMap, 1),
            ("optFlatMap", 2) => (Self::OptFlatMap, 1),
            _ => return None,
        })
    }
}

/// How deep an expression may nest: it is evaluated, and dropped, on the stack.
const MAX_DEPTH: usize = 160;

impl Expr {
    pub fn new(at: usize, kind: Kind) -> Result<Self, Problem> {
        let mut expr = Self { at, depth: 1, kind };
        let mut deepest = 0;
        expr.children(&mut |child| deepest = deepest.max(child.depth));
        expr.depth += deepest;
        if expr.depth > MAX_DEPTH {
            return Err(Problem::new(at, "expression recursion limit exceeded".to_owned()));
        }
        Ok(expr)
    }

    /// Whether the name is read anywhere in the expression where no macro binds it.
    pub fn reads(&self, name: &str) -> bool {
        let mut found = false;
        self.each(&mut |expr| match &expr.kind {
            Kind::Ident(ident) if ident == name => found = true,
            _ => {}
        });
        found
    }

    fn each(&self, visit: &mut dyn FnMut(&Expr)) {
        visit(self);
        self.children(&mut |child| child.each(visit));
    }

    pub fn children(&self, visit: &mut dyn FnMut(&Expr)) {
        match &self.kind {
            Kind::Select { of, .. } | Kind::Has { of, .. } => visit(of),
            Kind::Index { of, by, .. } => [of, by].iter().for_each(|e| visit(e)),
            Kind::And(a, b) | Kind::Or(a, b) => [a, b].iter().for_each(|e| visit(e)),
            Kind::If(parts) => parts.iter().for_each(visit),
            Kind::Call { target, args, .. } => {
                target.iter().for_each(|e| visit(e));
                args.iter().for_each(visit);
            }
            Kind::List(items) => items.iter().for_each(|(e, _)| visit(e)),
            Kind::Map(entries) | Kind::Message(_, entries) => {
                entries.iter().for_each(|(k, v, _)| [k, v].into_iter().for_each(&mut *visit))
            }
            Kind::Macro(call) => {
                visit(&call.over);
                call.bodies.iter().for_each(visit);
            }
            _ => {}
        }
    }
}
