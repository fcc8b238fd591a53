//! Evaluation: every step is counted, so that no expression runs for long.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, Map, OptionalValue};

use super::syntax::{Expr, Kind, Macro, MacroName};
use super::{Failure, Host, call, functions};

type Evaluated = Result<Value, Failure>;

/// Evaluates, and answers what it cost.
pub fn evaluate(expr: &Expr, variables: &[(&str, Value)], host: Option<&dyn Host>, limit: u64) -> (Evaluated, u64) {
    let mut evaluator = Evaluator { left: limit, host };
    // Variables are few; each becomes a scope around the next.
    let result = evaluator.with_all(variables, expr, None);
    (result, limit - evaluator.left)
}

struct Scope<'a> {
    name: &'a str,
    value: Value,
    outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    fn find(&self, name: &str) -> Option<&Value> {
        if self.name == name { Some(&self.value) } else { self.outer.and_then(|outer| outer.find(name)) }
    }
}

pub struct Evaluator<'h> {
    left: u64,
    host: Option<&'h dyn Host>,
}

fn error<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Error(text.into()))
}

pub fn no_overload<T>() -> Result<T, Failure> {
    error("no such overload")
}

pub fn some(value: Value) -> Value {
    Value::Opaque(Arc::new(OptionalValue::of(value)))
}

pub fn none() -> Value {
    Value::Opaque(Arc::new(OptionalValue::none()))
}

/// What is in an optional; `None` if the value is no optional at all.
pub fn optional(value: &Value) -> Option<Option<Value>> {
    let optional: &OptionalValue = value.try_into().ok()?;
    Some(optional.value().cloned())
}

pub fn list(items: Vec<Value>) -> Value {
    Value::List(Arc::new(items))
}

impl Evaluator<'_> {
    fn with_all(&mut self, variables: &[(&str, Value)], expr: &Expr, outer: Option<&Scope<'_>>) -> Evaluated {
        match variables.split_first() {
            None => self.eval(expr, outer),
            Some(((name, value), rest)) => {
                let scope = Scope { name, value: value.clone(), outer };
                self.with_all(rest, expr, Some(&scope))
            }
        }
    }

    /// Takes the cost of something off what is left.
    pub fn charge(&mut self, cost: u64) -> Result<(), Failure> {
        if cost > self.left {
            self.left = 0;
            return Err(Failure::Cost);
        }
        self.left -= cost;
        Ok(())
    }

    fn eval(&mut self, expr: &Expr, scope: Option<&Scope<'_>>) -> Evaluated {
        self.charge(1)?;
        match &expr.kind {
            Kind::Null => Ok(Value::Null),
            Kind::Bool(flag) => Ok(Value::Bool(*flag)),
            Kind::Int(n) => Ok(Value::Int(*n)),
            Kind::Uint(n) => Ok(Value::UInt(*n)),
            Kind::Double(d) => Ok(Value::Float(*d)),
            Kind::Text(text) => Ok(Value::String(Arc::new(text.clone()))),
            Kind::Bytes(bytes) => Ok(Value::Bytes(Arc::new(bytes.clone()))),
            Kind::Ident(name) => match scope.and_then(|s| s.find(name)) {
                Some(value) => Ok(value.clone()),
                None if functions::is_type_name(name) => Ok(Value::String(Arc::new(name.clone()))),
                None => error(format!("no such attribute(s): {name}")),
            },
            Kind::Select { of, field, optional } => {
                if let Some(made) = self.member(of, field, scope) {
                    return if *optional { made.map(some) } else { made };
                }
                let of = self.eval(of, scope)?;
                select(&of, field, *optional)
            }
            Kind::Has { of, field } => {
                if let Some(made) = self.member(of, field, scope) {
                    return made.map(|_| Value::Bool(true));
                }
                let of = self.eval(of, scope)?;
                let of = match super::eval::optional(&of) {
                    Some(Some(inner)) => inner,
                    Some(None) => return Ok(Value::Bool(false)),
                    None => of,
                };
                match &of {
                    Value::Map(map) => Ok(Value::Bool(map.get(&Key::from(field.as_str())).is_some())),
                    _ => no_overload(),
                }
            }
            Kind::Index { of, by, optional } => {
                let of = self.eval(of, scope)?;
                let by = self.eval(by, scope)?;
                index(&of, &by, *optional)
            }
            Kind::And(a, b) => self.logic(a, b, scope, false),
            Kind::Or(a, b) => self.logic(a, b, scope, true),
            Kind::If(parts) => {
                let [condition, yes, no] = &**parts;
                match self.eval(condition, scope)? {
                    Value::Bool(true) => self.eval(yes, scope),
                    Value::Bool(false) => self.eval(no, scope),
                    _ => no_overload(),
                }
            }
            Kind::List(items) => {
                let mut out = Vec::with_capacity(items.len());
                for (item, maybe) in items {
                    let value = self.eval(item, scope)?;
                    match optional(&value) {
                        Some(inner) if *maybe => out.extend(inner),
                        _ => out.push(value),
                    }
                }
                Ok(list(out))
            }
            Kind::Map(entries) | Kind::Message(_, entries) => {
                let mut out = HashMap::with_capacity(entries.len());
                for (key, value, maybe) in entries {
                    let key = self.eval(key, scope)?;
                    let Ok(key) = TryInto::<Key>::try_into(key) else { return error("unsupported key type") };
                    let value = self.eval(value, scope)?;
                    match optional(&value) {
                        Some(Some(inner)) if *maybe => out.insert(key, inner),
                        Some(None) if *maybe => continue,
                        _ => out.insert(key, value),
                    };
                }
                Ok(Value::Map(Map { map: Arc::new(out) }))
            }
            Kind::Call { target, name, args } => self.call(target.as_deref(), name, args, scope),
            Kind::Macro(call) => self.expand(call, scope),
        }
    }

    /// A member that the host makes when it is read.
    fn member(&mut self, of: &Expr, field: &str, scope: Option<&Scope<'_>>) -> Option<Evaluated> {
        let (Some(host), Kind::Ident(name)) = (self.host, &of.kind) else { return None };
        if scope.is_some_and(|s| s.find(name).is_some()) {
            return None;
        }
        host.member(name, field, &mut self.left)
    }

    /// `&&` and `||`: either side alone may decide, whatever is wrong with the other.
    fn logic(&mut self, a: &Expr, b: &Expr, scope: Option<&Scope<'_>>, decides: bool) -> Evaluated {
        let left = self.eval(a, scope);
        if matches!(&left, Ok(Value::Bool(flag)) if *flag == decides) || left == Err(Failure::Cost) {
            return left;
        }
        let right = self.eval(b, scope);
        match (left, right) {
            (_, Ok(Value::Bool(flag))) if flag == decides => Ok(Value::Bool(decides)),
            (_, Err(Failure::Cost)) => Err(Failure::Cost),
            (Err(why), _) | (Ok(Value::Bool(_)), Err(why)) => Err(why),
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!decides)),
            _ => no_overload(),
        }
    }

    fn call(&mut self, target: Option<&Expr>, name: &str, args: &[Expr], scope: Option<&Scope<'_>>) -> Evaluated {
        let prefix = match target.map(|t| &t.kind) {
            Some(Kind::Ident(prefix)) if scope.and_then(|s| s.find(prefix)).is_none() => Some(prefix.as_str()),
            _ => None,
        };
        let receiver = match (target, prefix) {
            (Some(target), None) => Some(self.eval(target, scope)?),
            _ => None,
        };
        let args = args.iter().map(|arg| self.eval(arg, scope)).collect::<Result<Vec<_>, _>>()?;
        self.charge(functions::cost(name, receiver.as_ref(), &args))?;
        if let (Some(host), Some(receiver)) = (self.host, &receiver)
            && let Some(answer) = host.method(receiver, name, &args, &mut self.left)
        {
            return answer;
        }
        match (prefix, receiver) {
            (Some(prefix), _) => functions::qualified(prefix, name, &args),
            (None, Some(receiver)) => functions::method(name, &receiver, &args),
            (None, None) => match name.starts_with(['_', '@', '!', '-']) {
                true => operator(name, &args),
                false => functions::function(name, &args),
            },
        }
    }

    fn expand(&mut self, call: &Macro, scope: Option<&Scope<'_>>) -> Evaluated {
        let over = self.eval(&call.over, scope)?;
        let first = call.first.as_str();
        match call.name {
            MacroName::Bind => return self.with(first, over, &call.bodies[0], scope),
            MacroName::OptMap | MacroName::OptFlatMap => {
                return match optional(&over) {
                    Some(Some(inner)) => {
                        let value = self.with(first, inner, &call.bodies[0], scope)?;
                        Ok(if call.name == MacroName::OptMap { some(value) } else { value })
                    }
                    Some(None) => Ok(none()),
                    None => no_overload(),
                };
            }
            _ => {}
        }
        let items = items(&over, call.second.is_some())?;
        self.charge(items.len() as u64)?;
        match call.name {
            MacroName::All => self.search(call, items, scope, false),
            MacroName::Exists => self.search(call, items, scope, true),
            _ => self.transform(call, items, scope),
        }
    }

    fn with(&mut self, name: &str, value: Value, body: &Expr, outer: Option<&Scope<'_>>) -> Evaluated {
        self.eval(body, Some(&Scope { name, value, outer }))
    }

    fn body(&mut self, call: &Macro, which: usize, item: &(Value, Value), scope: Option<&Scope<'_>>) -> Evaluated {
        let Some(body) = call.bodies.get(which) else { return no_overload() };
        let outer = Scope { name: &call.first, value: item.0.clone(), outer: scope };
        match &call.second {
            Some(second) => self.with(second, item.1.clone(), body, Some(&outer)),
            None => self.eval(body, Some(&outer)),
        }
    }

    /// `all` and `exists`: one element that decides makes up for errors in others.
    fn search(
        &mut self,
        call: &Macro,
        items: Vec<(Value, Value)>,
        scope: Option<&Scope<'_>>,
        decides: bool,
    ) -> Evaluated {
        let mut failure = None;
        for item in &items {
            match self.body(call, 0, item, scope) {
                Ok(Value::Bool(flag)) if flag == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failure = Some(Failure::Error("no such overload".to_owned())),
                Err(Failure::Cost) => return Err(Failure::Cost),
                Err(why) => failure = Some(why),
            }
        }
        failure.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn transform(&mut self, call: &Macro, items: Vec<(Value, Value)>, scope: Option<&Scope<'_>>) -> Evaluated {
        // With two bodies the first is a condition; a filter has nothing but one.
        let conditional = call.bodies.len() == 2 || matches!(call.name, MacroName::Filter | MacroName::ExistsOne);
        let last = call.bodies.len() - 1;
        let mut out: Vec<(Value, Value)> = Vec::new();
        for item in items {
            if conditional {
                match self.body(call, 0, &item, scope)? {
                    Value::Bool(true) => {}
                    Value::Bool(false) => continue,
                    _ => return no_overload(),
                }
            }
            let made = match call.name {
                MacroName::Filter | MacroName::ExistsOne => item.0.clone(),
                _ => self.body(call, last, &item, scope)?,
            };
            self.charge(1)?;
            out.push((item.0, made));
        }
        match call.name {
            MacroName::ExistsOne => Ok(Value::Bool(out.len() == 1)),
            MacroName::SortBy => {
                let mut failed = false;
                out.sort_by(|a, b| {
                    compare(&a.1, &b.1).unwrap_or_else(|| {
                        failed = true;
                        Ordering::Equal
                    })
                });
                if failed { no_overload() } else { Ok(list(out.into_iter().map(|(item, _)| item).collect())) }
            }
            MacroName::TransformMap => {
                let mut map = HashMap::new();
                for (key, value) in out {
                    let Ok(key) = TryInto::<Key>::try_into(key) else { return no_overload() };
                    map.insert(key, value);
                }
                Ok(Value::Map(Map { map: Arc::new(map) }))
            }
            MacroName::TransformMapEntry => {
                let mut map = HashMap::new();
                for (_, entries) in out {
                    let Value::Map(entries) = entries else { return no_overload() };
                    map.extend(entries.map.iter().map(|(k, v)| (k.clone(), v.clone())));
                }
                Ok(Value::Map(Map { map: Arc::new(map) }))
            }
            _ => Ok(list(out.into_iter().map(|(_, made)| made).collect())),
        }
    }
}

/// What a macro goes over: elements, or keys; with two names index and element, or key and value.
fn items(over: &Value, pairs: bool) -> Result<Vec<(Value, Value)>, Failure> {
    match over {
        Value::List(list) if pairs => {
            Ok(list.iter().enumerate().map(|(i, v)| (Value::Int(i as i64), v.clone())).collect())
        }
        Value::List(list) => Ok(list.iter().map(|v| (v.clone(), Value::Null)).collect()),
        Value::Map(map) => {
            // Go's maps have no order; ours is by key, so that the same object always gives the same answer.
            let mut entries: Vec<(&Key, &Value)> = map.map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            Ok(entries.into_iter().map(|(k, v)| (functions::key_value(k), v.clone())).collect())
        }
        _ => no_overload(),
    }
}

fn select(of: &Value, field: &str, maybe: bool) -> Evaluated {
    let key = Key::from(field);
    if let Some(inner) = optional(of) {
        let found = inner.as_ref().and_then(|inner| match inner {
            Value::Map(map) => map.get(&key).cloned(),
            _ => None,
        });
        return Ok(found.map_or_else(none, some));
    }
    match of {
        Value::Map(map) => match (map.get(&key), maybe) {
            (Some(value), false) => Ok(value.clone()),
            (Some(value), true) => Ok(some(value.clone())),
            (None, true) => Ok(none()),
            (None, false) => error(format!("no such key: {field}")),
        },
        _ => no_overload(),
    }
}

fn index(of: &Value, by: &Value, maybe: bool) -> Evaluated {
    if let Some(inner) = optional(of) {
        let found = inner.and_then(|inner| index(&inner, by, false).ok());
        return Ok(found.map_or_else(none, some));
    }
    let found = match of {
        Value::List(list) => {
            let position = match by {
                Value::Int(i) => *i,
                Value::UInt(u) => i64::try_from(*u).unwrap_or(-1),
                Value::Float(f) if f.fract() == 0.0 => *f as i64,
                _ => return no_overload(),
            };
            let item = usize::try_from(position).ok().and_then(|i| list.get(i));
            item.cloned().ok_or_else(|| format!("index out of bounds: {position}"))
        }
        Value::Map(map) => {
            let Ok(key) = TryInto::<Key>::try_into(by.clone()) else { return no_overload() };
            map.get(&key).cloned().ok_or_else(|| format!("no such key: {key}"))
        }
        _ => return no_overload(),
    };
    match (found, maybe) {
        (Ok(value), true) => Ok(some(value)),
        (Ok(value), false) => Ok(value),
        (Err(_), true) => Ok(none()),
        (Err(why), false) => error(why),
    }
}

pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.map.len() == b.map.len() && a.map.iter().all(|(k, v)| b.get(k).is_some_and(|w| equal(v, w)))
        }
        (Value::Int(_) | Value::UInt(_) | Value::Float(_), Value::Int(_) | Value::UInt(_) | Value::Float(_)) => {
            compare(a, b) == Some(Ordering::Equal)
        }
        _ => a == b,
    }
}

pub fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::UInt(a), Value::UInt(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::UInt(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::UInt(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Float(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Int(a), Value::Float(b)) => (*a as f64).partial_cmp(b),
        (Value::Float(a), Value::UInt(b)) => a.partial_cmp(&(*b as f64)),
        (Value::UInt(a), Value::Float(b)) => (*a as f64).partial_cmp(b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Duration(_), Value::Duration(_)) | (Value::Timestamp(_), Value::Timestamp(_)) => a.partial_cmp(b),
        _ => None,
    }
}

fn operator(name: &str, args: &[Value]) -> Evaluated {
    let truth = |flag: bool| Ok(Value::Bool(flag));
    match (name, args) {
        ("!_", [Value::Bool(flag)]) => truth(!flag),
        ("-_", [Value::Int(n)]) => n.checked_neg().map_or_else(|| error("integer overflow"), |n| Ok(Value::Int(n))),
        ("-_", [Value::Float(f)]) => Ok(Value::Float(-f)),
        ("_==_", [a, b]) => truth(equal(a, b)),
        ("_!=_", [a, b]) => truth(!equal(a, b)),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => {
            let not_a_number = |v: &Value| matches!(v, Value::Float(f) if f.is_nan());
            if not_a_number(a) || not_a_number(b) {
                return truth(false);
            }
            let Some(order) = compare(a, b) else { return no_overload() };
            truth(match name {
                "_<_" => order.is_lt(),
                "_<=_" => order.is_le(),
                "_>_" => order.is_gt(),
                _ => order.is_ge(),
            })
        }
        ("@in", [item, Value::List(list)]) => truth(list.iter().any(|v| equal(v, item))),
        ("@in", [item, Value::Map(map)]) => {
            truth(TryInto::<Key>::try_into(item.clone()).is_ok_and(|key| map.get(&key).is_some()))
        }
        (_, [a, b]) => arithmetic(name, a, b),
        _ => no_overload(),
    }
}

fn arithmetic(name: &str, a: &Value, b: &Value) -> Evaluated {
    let integer = |n: Option<i64>| n.map_or_else(|| error("integer overflow"), |n| Ok(Value::Int(n)));
    let unsigned = |n: Option<u64>| n.map_or_else(|| error("unsigned integer overflow"), |n| Ok(Value::UInt(n)));
    match (name, a, b) {
        ("_/_", Value::Int(_), Value::Int(0)) | ("_/_", Value::UInt(_), Value::UInt(0)) => error("division by zero"),
        ("_%_", Value::Int(_), Value::Int(0)) | ("_%_", Value::UInt(_), Value::UInt(0)) => error("modulus by zero"),
        (_, Value::Int(a), Value::Int(b)) => integer(match name {
            "_+_" => a.checked_add(*b),
            "_-_" => a.checked_sub(*b),
            "_*_" => a.checked_mul(*b),
            "_/_" => a.checked_div(*b),
            "_%_" => a.checked_rem(*b),
            _ => return no_overload(),
        }),
        (_, Value::UInt(a), Value::UInt(b)) => unsigned(match name {
            "_+_" => a.checked_add(*b),
            "_-_" => a.checked_sub(*b),
            "_*_" => a.checked_mul(*b),
            "_/_" => a.checked_div(*b),
            "_%_" => a.checked_rem(*b),
            _ => return no_overload(),
        }),
        (_, Value::Float(a), Value::Float(b)) => Ok(Value::Float(match name {
            "_+_" => a + b,
            "_-_" => a - b,
            "_*_" => a * b,
            "_/_" => a / b,
            _ => return no_overload(),
        })),
        ("_+_", Value::String(a), Value::String(b)) => Ok(Value::String(Arc::new(format!("{a}{b}")))),
        ("_+_", Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes(Arc::new([&a[..], &b[..]].concat()))),
        ("_+_", Value::List(a), Value::List(b)) => Ok(list([&a[..], &b[..]].concat())),
        ("_+_" | "_-_", Value::Timestamp(_) | Value::Duration(_), Value::Timestamp(_) | Value::Duration(_)) => {
            let result = match name {
                "_+_" => a.clone() + b.clone(),
                _ => a.clone() - b.clone(),
            };
            result.or_else(|_| error("timestamp overflow"))
        }
        _ => no_overload(),
    }
}

pub fn matches(text: &str, pattern: &str) -> Evaluated {
    call::matches(text, pattern).map(Value::Bool)
}
