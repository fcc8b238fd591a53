//! Types of expressions are checked before they are ever evaluated: an expression that cannot be right is refused with
//! the place and reason, in upstream's words.

use super::Problem;
use super::functions;
use super::syntax::{Expr, Kind, Macro, MacroName};
use super::types::Type;

/// Methods of upstream's authorizer library.
const AUTHORIZER: [&str; 14] = [
    "path",
    "group",
    "serviceAccount",
    "resource",
    "subresource",
    "namespace",
    "name",
    "fieldSelector",
    "labelSelector",
    "check",
    "allowed",
    "reason",
    "errored",
    "error",
];

/// The variables an expression may read.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: Vec<(String, Type)>,
    /// Whether an expression may make objects and patches: `Object{}`, `JSONPatch{}`.
    messages: bool,
}

impl Environment {
    pub fn new(variables: impl IntoIterator<Item = (String, Type)>) -> Self {
        Self { variables: variables.into_iter().collect(), messages: false }
    }

    pub fn with_messages(mut self) -> Self {
        self.messages = true;
        self
    }
}

pub fn check(expr: &Expr, environment: &Environment) -> Result<Type, Vec<Problem>> {
    let mut checker = Checker {
        names: environment.variables.clone(),
        messages: environment.messages,
        problems: Vec::new(),
        literals: Vec::new(),
    };
    let ty = checker.of(expr);
    match (checker.problems.is_empty(), checker.literals.is_empty()) {
        (false, _) => Err(checker.problems),
        (true, false) => Err(checker.literals),
        (true, true) => Ok(ty),
    }
}

struct Checker {
    /// Innermost last.
    names: Vec<(String, Type)>,
    messages: bool,
    problems: Vec<Problem>,
    /// Texts that their function cannot take; told only if everything else is right.
    literals: Vec<Problem>,
}

fn list(of: Type) -> Type {
    Type::List(Box::new(of))
}

impl Checker {
    fn find(&self, name: &str) -> Option<&Type> {
        self.names.iter().rev().find(|(known, _)| known == name).map(|(_, ty)| ty)
    }

    fn wrong(&mut self, at: usize, message: String) -> Type {
        self.problems.push(Problem::new(at, message));
        // Everything around an error is let pass: one mistake is told once.
        Type::Unknown
    }

    fn no_overload(&mut self, at: usize, name: &str, target: Option<&Type>, args: &[Type]) -> Type {
        let args = args.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let target = target.map(|t| format!("{t}.")).unwrap_or_default();
        self.wrong(at, format!("found no matching overload for '{name}' applied to '{target}({args})'"))
    }

    fn of(&mut self, expr: &Expr) -> Type {
        match &expr.kind {
            Kind::Null => Type::Null,
            Kind::Bool(_) => Type::Bool,
            Kind::Int(_) => Type::Int,
            Kind::Uint(_) => Type::Uint,
            Kind::Double(_) => Type::Double,
            Kind::Text(_) => Type::Text,
            Kind::Bytes(_) => Type::Bytes,
            Kind::Ident(name) => match self.find(name) {
                Some(ty) => ty.clone(),
                None if functions::type_named(name).is_some() => Type::Unknown,
                None => self.wrong(expr.at, format!("undeclared reference to '{name}' (in container '')")),
            },
            Kind::Select { .. }
                if functions::type_at(expr)
                    .is_some_and(|name| name.split('.').next().is_some_and(|root| self.find(root).is_none())) =>
            {
                Type::Unknown
            }
            Kind::Select { of, field, optional } => {
                let of = self.of(of);
                let ty = self.select(expr.at, &of, field);
                if *optional && !matches!(ty, Type::Optional(_)) { Type::Optional(Box::new(ty)) } else { ty }
            }
            Kind::Has { of, field } => {
                let of = self.of(of);
                self.select(expr.at, &of, field);
                Type::Bool
            }
            Kind::Index { of, by, optional } => {
                let (of, by) = (self.of(of), self.of(by));
                let ty = self.index(expr.at, &of, &by);
                if *optional && !matches!(ty, Type::Optional(_)) { Type::Optional(Box::new(ty)) } else { ty }
            }
            Kind::And(a, b) => self.logic(expr.at, "_&&_", a, b),
            Kind::Or(a, b) => self.logic(expr.at, "_||_", a, b),
            Kind::If(parts) => {
                let [condition, yes, no] = &**parts;
                let types = [self.of(condition), self.of(yes), self.of(no)];
                if !types[0].fits(&Type::Bool) || !types[1].fits(&types[2]) {
                    return self.no_overload(expr.at, "_?_:_", None, &types);
                }
                let [_, yes, no] = types;
                if yes.open() || yes == Type::Null { no } else { yes }
            }
            Kind::List(items) => {
                let types: Vec<Type> =
                    items.iter().map(|(item, optional)| unwrapped(self.of(item), *optional)).collect();
                list(common(&types))
            }
            Kind::Map(entries) => {
                let keys: Vec<Type> = entries.iter().map(|(key, ..)| self.of(key)).collect();
                let values: Vec<Type> =
                    entries.iter().map(|(_, v, optional)| unwrapped(self.of(v), *optional)).collect();
                Type::Map(Box::new(common(&keys)), Box::new(common(&values)))
            }
            Kind::Message(name, fields) => self.message(expr.at, name, fields),
            Kind::Call { target, name, args } => self.call(expr.at, target.as_deref(), name, args),
            Kind::Macro(call) => self.expand(call),
        }
    }

    /// An object that a policy makes: any fields in objects, those of a JSON patch otherwise.
    fn message(&mut self, at: usize, name: &str, fields: &[(Expr, Expr, bool)]) -> Type {
        let values: Vec<Type> = fields.iter().map(|(_, v, optional)| unwrapped(self.of(v), *optional)).collect();
        if !self.messages {
            return self.wrong(at, format!("undeclared reference to '{name}' (in container '')"));
        }
        if name == "JSONPatch" {
            for ((key, ..), ty) in fields.iter().zip(&values) {
                let Kind::Text(field) = &key.kind else { continue };
                match &**field {
                    "value" => {}
                    "op" | "path" | "from" if ty.fits(&Type::Text) => {}
                    "op" | "path" | "from" => {
                        let why = format!("expected type of field '{field}' is 'string' but provided type is '{ty}'");
                        self.wrong(key.at, why);
                    }
                    _ => {
                        self.wrong(key.at, format!("undefined field '{field}'"));
                    }
                }
            }
        }
        Type::message(name)
    }

    fn select(&mut self, at: usize, of: &Type, field: &str) -> Type {
        match of {
            Type::Object(object) if object.is_message() => Type::Dyn,
            // A reserved word stands for itself after a dot, escaped or not.
            Type::Object(object) => match object.fields.get(field).or(object.fields.get(&*format!("__{field}__"))) {
                Some(ty) => ty.clone(),
                None => self.wrong(at, format!("undefined field '{field}'")),
            },
            Type::Map(_, value) => (**value).clone(),
            Type::Optional(inner) => {
                let ty = self.select(at, inner, field);
                Type::Optional(Box::new(ty))
            }
            Type::Dyn => Type::Dyn,
            Type::Unknown => Type::Unknown,
            other => self.wrong(at, format!("type '{other}' does not support field selection")),
        }
    }

    fn index(&mut self, at: usize, of: &Type, by: &Type) -> Type {
        match of {
            Type::List(item) if by.fits(&Type::Int) || by.fits(&Type::Uint) || by.fits(&Type::Double) => {
                (**item).clone()
            }
            Type::Map(key, value) if by.fits(key) => (**value).clone(),
            Type::Optional(inner) => {
                let ty = self.index(at, inner, by);
                Type::Optional(Box::new(ty))
            }
            Type::Dyn => Type::Dyn,
            Type::Unknown => Type::Unknown,
            _ => self.no_overload(at, "_[_]", None, &[of.clone(), by.clone()]),
        }
    }

    fn logic(&mut self, at: usize, name: &str, a: &Expr, b: &Expr) -> Type {
        let types = [self.of(a), self.of(b)];
        if !types.iter().all(|ty| ty.fits(&Type::Bool)) {
            return self.no_overload(at, name, None, &types);
        }
        Type::Bool
    }

    fn call(&mut self, at: usize, target: Option<&Expr>, name: &str, args: &[Expr]) -> Type {
        if let Some(Expr { kind: Kind::Ident(prefix), at: prefix_at, .. }) = target
            && self.find(prefix).is_none()
        {
            let args: Vec<Type> = args.iter().map(|arg| self.of(arg)).collect();
            return match functions::qualified_type(prefix, name, &args) {
                Some(ty) => ty,
                None => self.wrong(*prefix_at, format!("undeclared reference to '{prefix}' (in container '')")),
            };
        }
        let target = target.map(|target| self.of(target));
        if let [Expr { kind: Kind::Text(literal), at, .. }] = args
            && !functions::accepts_literal(name, literal)
        {
            self.literals.push(Problem::new(*at, format!("invalid {name} argument")));
        }
        let args: Vec<Type> = args.iter().map(|arg| self.of(arg)).collect();
        let found = match &target {
            Some(target) => functions::method_type(name, target, &args),
            None if name.starts_with(['_', '@', '!', '-']) => functions::Found::Type(operator_type(name, &args)),
            None => functions::function_type(name, &args),
        };
        match found {
            functions::Found::Type(Some(ty)) => ty,
            functions::Found::Type(None) => self.no_overload(at, display_name(name), target.as_ref(), &args),
            // What is not known here is the authorizer, which whoever evaluates brings along.
            functions::Found::Nothing if target == Some(Type::Unknown) && AUTHORIZER.contains(&name) => match name {
                "allowed" | "errored" => Type::Bool,
                "reason" | "error" => Type::Text,
                _ => Type::Unknown,
            },
            functions::Found::Nothing => self.wrong(at, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn expand(&mut self, call: &Macro) -> Type {
        let over = self.of(&call.over);
        let pairs = call.second.is_some();
        let (first, second) = match (&over, call.name) {
            (over, MacroName::Bind) => (over.clone(), Type::Unknown),
            (Type::Optional(inner), MacroName::OptMap | MacroName::OptFlatMap) => ((**inner).clone(), Type::Unknown),
            (Type::List(item), _) if pairs => (Type::Int, (**item).clone()),
            (Type::List(item), _) => ((**item).clone(), Type::Unknown),
            (Type::Map(key, value), _) => ((**key).clone(), (**value).clone()),
            (over, _) if over.open() => (over.clone(), over.clone()),
            (other, _) => {
                let what = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.wrong(call.over.at, what);
                (Type::Unknown, Type::Unknown)
            }
        };
        let depth = self.names.len();
        self.names.push((call.first.clone(), first.clone()));
        if let Some(name) = &call.second {
            self.names.push((name.clone(), second));
        }
        let bodies: Vec<(usize, Type)> = call.bodies.iter().map(|body| (body.at, self.of(body))).collect();
        self.names.truncate(depth);
        let last = bodies.last().map_or(Type::Unknown, |(_, ty)| ty.clone());
        let conditional = bodies.len() == 2
            || matches!(call.name, MacroName::All | MacroName::Exists | MacroName::ExistsOne | MacroName::Filter);
        if conditional && let Some((at, ty)) = bodies.first().filter(|(_, ty)| !ty.fits(&Type::Bool)) {
            let name = match call.name {
                MacroName::All => "_&&_",
                MacroName::Exists => "_||_",
                _ => "_?_:_",
            };
            return self.no_overload(*at, name, None, &[Type::Bool, ty.clone()]);
        }
        match call.name {
            MacroName::All | MacroName::Exists | MacroName::ExistsOne => Type::Bool,
            MacroName::Map | MacroName::TransformList => list(last),
            MacroName::Filter => list(first),
            MacroName::SortBy => over,
            MacroName::TransformMap => Type::Map(Box::new(first), Box::new(last)),
            MacroName::TransformMapEntry | MacroName::Bind | MacroName::OptFlatMap => last,
            MacroName::OptMap => Type::Optional(Box::new(last)),
        }
    }
}

fn unwrapped(ty: Type, optional: bool) -> Type {
    match ty {
        Type::Optional(inner) if optional => *inner,
        ty => ty,
    }
}

/// The type of several things in one container.
fn common(types: &[Type]) -> Type {
    let Some(first) = types.first() else { return Type::Unknown };
    if types.iter().all(|ty| ty == first) { first.clone() } else { Type::Dyn }
}

/// `in` has another name in messages.
fn display_name(name: &str) -> &str {
    if name == "@in" { "@in" } else { name }
}

fn operator_type(name: &str, args: &[Type]) -> Option<Type> {
    use Type::{Bool, Bytes, Double, Duration, Int, Text, Timestamp, Uint};
    let numeric = |ty: &Type| matches!(ty, Int | Uint | Double);
    match (name, args) {
        ("!_", [of]) => of.fits(&Bool).then_some(Bool),
        ("-_", [of]) if of.open() => Some(of.clone()),
        ("-_", [of]) => matches!(of, Int | Double).then(|| of.clone()),
        ("_==_" | "_!=_", [a, b]) => a.fits(b).then_some(Bool),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => {
            let ordered = |ty: &Type| numeric(ty) || matches!(ty, Text | Bytes | Bool | Duration | Timestamp);
            let fits = match (a.open(), b.open()) {
                (true, true) => true,
                (true, false) => ordered(b),
                (false, true) => ordered(a),
                _ => (numeric(a) && numeric(b)) || (ordered(a) && a == b),
            };
            fits.then_some(Bool)
        }
        ("@in", [item, Type::List(of)]) => item.fits(of).then_some(Bool),
        ("@in", [item, Type::Map(key, _)]) => item.fits(key).then_some(Bool),
        ("@in", [_, of]) => of.open().then_some(Bool),
        (_, [a, b]) if a.open() || b.open() => Some(if a.open() && b.open() { a.clone() } else { Type::Unknown }),
        ("_+_", [Type::List(a), Type::List(b)]) => {
            a.fits(b).then(|| if a.open() { list((**b).clone()) } else { list((**a).clone()) })
        }
        ("_+_", [a, b]) if a == b && matches!(a, Text | Bytes | Duration) => Some(a.clone()),
        ("_+_", [Timestamp, Duration] | [Duration, Timestamp]) => Some(Timestamp),
        ("_-_", [Timestamp, Duration]) => Some(Timestamp),
        ("_-_", [Timestamp, Timestamp] | [Duration, Duration]) => Some(Duration),
        ("_%_", [a, b]) => (a == b && matches!(a, Int | Uint)).then(|| a.clone()),
        (_, [a, b]) => (a == b && numeric(a)).then(|| a.clone()),
        _ => None,
    }
}
