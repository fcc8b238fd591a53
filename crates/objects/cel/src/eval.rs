//! Evaluation: every step is counted, so that no expression runs for long.

use super::compare::{equal_within, ordered};
use super::functions;
use super::meter::Meter;
use super::syntax::{Expr, Kind, Macro, MacroName};
use super::value::{Key, Map, Value};
use super::{Evaluated, Failure, Host, error, no_overload};

/// Evaluates, and answers what it cost.
pub fn evaluate(expr: &Expr, variables: &[(&str, Value)], host: Option<&dyn Host>, limit: u64) -> (Evaluated, u64) {
    let mut evaluator = Evaluator { meter: Meter { left: limit }, host };
    // Variables are few; each becomes a scope around the next.
    let result = evaluator.with_all(variables, expr, None);
    (result, limit - evaluator.meter.left)
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

struct Evaluator<'h> {
    meter: Meter,
    host: Option<&'h dyn Host>,
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

    fn eval(&mut self, expr: &Expr, scope: Option<&Scope<'_>>) -> Evaluated {
        self.meter.charge(1)?;
        match &expr.kind {
            Kind::Null => Ok(Value::Null),
            Kind::Bool(flag) => Ok(Value::Bool(*flag)),
            Kind::Int(n) => Ok(Value::Int(*n)),
            Kind::Uint(n) => Ok(Value::UInt(*n)),
            Kind::Double(d) => Ok(Value::Float(*d)),
            Kind::Text(text) => Ok(Value::String(text.clone())),
            Kind::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
            Kind::Ident(name) => match scope.and_then(|s| s.find(name)) {
                Some(value) => Ok(value.clone()),
                None => match functions::type_named(name) {
                    Some(name) => Ok(Value::Type(name)),
                    None => error(format!("no such attribute(s): {name}")),
                },
            },
            Kind::Select { of, field, optional } => {
                if let Some(made) = self.member(of, field, scope) {
                    return if *optional { made.map(Value::some) } else { made };
                }
                if let Some(name) = functions::type_at(expr)
                    && scope.is_none_or(|s| name.split('.').next().is_some_and(|root| s.find(root).is_none()))
                {
                    return Ok(Value::Type(name));
                }
                let of = self.eval(of, scope)?;
                select(&of, field, *optional)
            }
            Kind::Has { of, field } => {
                if let Some(made) = self.member(of, field, scope) {
                    return made.map(|_| Value::Bool(true));
                }
                let of = self.eval(of, scope)?;
                let of = match &of {
                    Value::Optional(Some(inner)) => inner,
                    Value::Optional(None) => return Ok(Value::Bool(false)),
                    of => of,
                };
                match of {
                    Value::Map(map) => Ok(Value::Bool(map.field(field).is_some())),
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
                    match value {
                        Value::Optional(inner) if *maybe => out.extend(inner.map(|inner| (*inner).clone())),
                        value => out.push(value),
                    }
                }
                Ok(Value::list(out))
            }
            Kind::Map(entries) | Kind::Message(_, entries) => {
                let mut out = Vec::with_capacity(entries.len());
                for (key, value, maybe) in entries {
                    let key = self.eval(key, scope)?;
                    // Doubles find keys, but are none.
                    let key = Key::of(&key).filter(|_| !matches!(key, Value::Float(_)));
                    let Some(key) = key else { return error("unsupported key type") };
                    match self.eval(value, scope)? {
                        Value::Optional(Some(inner)) if *maybe => out.push((key, (*inner).clone())),
                        Value::Optional(None) if *maybe => {}
                        value => out.push((key, value)),
                    }
                }
                Ok(Value::Map(Map::new(out)))
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
        host.member(name, field, &mut self.meter.left)
    }

    /// `&&` and `||`: either side alone may decide, whatever is wrong with the other.
    fn logic(&mut self, a: &Expr, b: &Expr, scope: Option<&Scope<'_>>, decides: bool) -> Evaluated {
        let left = self.eval(a, scope);
        if matches!(&left, Ok(Value::Bool(flag)) if *flag == decides) || matches!(left, Err(Failure::Cost)) {
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
        self.meter.charge(functions::cost(name, receiver.as_ref(), &args))?;
        if let (Some(host), Some(receiver)) = (self.host, &receiver)
            && let Some(answer) = host.method(receiver, name, &args, &mut self.meter.left)
        {
            return answer;
        }
        let meter = &mut self.meter;
        match (prefix, receiver) {
            (Some(prefix), _) => functions::qualified(prefix, name, &args, meter),
            (None, Some(receiver)) => functions::method(name, &receiver, &args, meter),
            (None, None) => match name.starts_with(['_', '@', '!', '-']) {
                true => operator(name, &args, meter),
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
                return match over {
                    Value::Optional(Some(inner)) => {
                        let value = self.with(first, (*inner).clone(), &call.bodies[0], scope)?;
                        Ok(if call.name == MacroName::OptMap { Value::some(value) } else { value })
                    }
                    Value::Optional(None) => Ok(Value::Optional(None)),
                    _ => no_overload(),
                };
            }
            _ => {}
        }
        let items = items(&over, call.second.is_some())?;
        self.meter.charge(items.len() as u64)?;
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
            self.meter.charge(1)?;
            out.push((item.0, made));
        }
        match call.name {
            MacroName::ExistsOne => Ok(Value::Bool(out.len() == 1)),
            MacroName::SortBy => functions::lists::sorted(out, &mut self.meter).map(Value::list),
            MacroName::TransformMap => {
                let entries = out.into_iter().map(|(key, value)| Some((Key::of(&key)?, value)));
                let entries: Option<Vec<_>> = entries.collect();
                entries.map_or_else(no_overload, |entries| Ok(Value::Map(Map::new(entries))))
            }
            MacroName::TransformMapEntry => {
                let mut made = Vec::new();
                for (_, entries) in out {
                    let Value::Map(entries) = entries else { return no_overload() };
                    self.meter.charge(entries.len() as u64)?;
                    made.extend(entries.iter().map(|(key, value)| (key.clone(), value.clone())));
                }
                match Map::repeated(&made) {
                    Some(key) => error(format!("insert failed: key {key} already exists")),
                    None => Ok(Value::Map(Map::new(made))),
                }
            }
            _ => Ok(Value::list(out.into_iter().map(|(_, made)| made).collect())),
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
        Value::Map(map) => Ok(map.iter().map(|(k, v)| (k.value(), v.clone())).collect()),
        _ => no_overload(),
    }
}

/// What was found, or not, as an optional.
fn perhaps(found: Option<Value>) -> Evaluated {
    Ok(Value::Optional(found.map(Into::into)))
}

fn select(of: &Value, field: &str, maybe: bool) -> Evaluated {
    match of {
        Value::Optional(None) => perhaps(None),
        Value::Optional(Some(inner)) => match &**inner {
            Value::Map(map) => perhaps(map.field(field).cloned()),
            _ => perhaps(None),
        },
        Value::Map(map) => match (map.field(field), maybe) {
            (found, true) => perhaps(found.cloned()),
            (Some(value), false) => Ok(value.clone()),
            (None, false) => error(format!("no such key: {field}")),
        },
        _ => no_overload(),
    }
}

fn index(of: &Value, by: &Value, maybe: bool) -> Evaluated {
    let found = match of {
        Value::Optional(None) => return perhaps(None),
        Value::Optional(Some(inner)) => return perhaps(index(inner, by, false).ok()),
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
            let Some(key) = Key::of(by) else { return no_overload() };
            map.get(&key).cloned().ok_or_else(|| format!("no such key: {key}"))
        }
        _ => return no_overload(),
    };
    match (found, maybe) {
        (found, true) => perhaps(found.ok()),
        (Ok(value), false) => Ok(value),
        (Err(why), false) => error(why),
    }
}

fn operator(name: &str, args: &[Value], meter: &mut Meter) -> Evaluated {
    match (name, args) {
        ("!_", [Value::Bool(flag)]) => Ok(Value::Bool(!flag)),
        ("-_", [Value::Int(n)]) => n.checked_neg().map_or_else(|| error("integer overflow"), |n| Ok(Value::Int(n))),
        ("-_", [Value::Float(f)]) => Ok(Value::Float(-f)),
        ("_==_", [a, b]) => equal_within(a, b, meter).map(Value::Bool),
        ("_!=_", [a, b]) => equal_within(a, b, meter).map(|same| Value::Bool(!same)),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => ordered(name, a, b),
        ("@in", [item, Value::List(list)]) => {
            functions::lists::position(list, item, meter).map(|at| at.is_some().into())
        }
        ("@in", [item, Value::Map(map)]) => Ok(Key::of(item).is_some_and(|key| map.get(&key).is_some()).into()),
        (_, [a, b]) => arithmetic(name, a, b),
        _ => no_overload(),
    }
}

pub fn arithmetic(name: &str, a: &Value, b: &Value) -> Evaluated {
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
        ("_+_", Value::String(a), Value::String(b)) => Ok(format!("{a}{b}").into()),
        ("_+_", Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&a[..], &b[..]].concat().into())),
        ("_+_", Value::List(a), Value::List(b)) => Ok(Value::list([&a[..], &b[..]].concat())),
        ("_+_" | "_-_", Value::Timestamp(_) | Value::Duration(_), Value::Timestamp(_) | Value::Duration(_)) => {
            functions::time::arithmetic(name, a, b)
        }
        _ => no_overload(),
    }
}
