//! The part of kubectl's JSONPath that printer columns of custom resources use.
//!
//! Fields with escaped dots, indices, slices, wildcards, unions, filters and recursive descent. A path that leads nowhere
//! finds nothing; one that misuses a value (an index into a string, an index past the end) fails as a whole.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Slice { start: Option<i64>, end: End, step: i64 },
    Union(Vec<Vec<Step>>),
    Filter { left: Vec<Step>, test: Option<(Comparison, Vec<Step>)> },
    Recursive,
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// A single index was given: one element.
    One,
    Open,
    At(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Less,
    Greater,
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
}

/// The nesting of filters in filters that is still read; nobody writes more.
const MAX_DEPTH: usize = 16;

impl JsonPath {
    /// Reads a path as written in a CustomResourceDefinition, without braces: `.spec.items[0].name`.
    pub fn parse(path: &str) -> Option<Self> {
        parse(path, 0).map(|steps| Self { steps })
    }

    /// All values the path leads to; `None` if it misuses one on the way.
    pub fn find<'a>(&'a self, value: &'a Value) -> Option<Vec<&'a Value>> {
        walk(&self.steps, vec![value])
    }
}

fn parse(path: &str, depth: usize) -> Option<Vec<Step>> {
    if depth > MAX_DEPTH {
        return None;
    }
    let mut steps = Vec::new();
    let mut rest = path;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("[?(") {
            let end = filter_end(after)?;
            steps.push(parse_filter(&after[..end], depth)?);
            rest = after[end + 1..].strip_prefix(']')?;
        } else if let Some(after) = rest.strip_prefix("..") {
            if steps.last() == Some(&Step::Recursive) {
                return None;
            }
            steps.push(Step::Recursive);
            rest = after;
            if after.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                rest = parse_field(after, &mut steps);
            }
        } else {
            rest = match c {
                ' ' | '@' | '$' => &rest[1..],
                '.' => parse_field(&rest[1..], &mut steps),
                '[' => {
                    let end = rest.find(']')?;
                    parse_brackets(&rest[1..end], &mut steps, depth)?;
                    &rest[end + 1..]
                }
                '"' | '\'' => {
                    let (text, after) = parse_quoted(&rest[1..], c)?;
                    steps.push(Step::Literal(text.into()));
                    after
                }
                '+' | '-' | '0'..='9' => {
                    let end = rest[1..].find(|c: char| c != '.' && !c.is_ascii_digit());
                    let (number, after) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
                    let integer = number.parse::<i64>().map(Value::from);
                    steps.push(Step::Literal(match integer {
                        Ok(integer) => integer,
                        Err(_) => number.parse::<f64>().ok()?.into(),
                    }));
                    after
                }
                _ => {
                    let end = rest.find(is_terminator).unwrap_or(rest.len());
                    let (word, after) = rest.split_at(end);
                    let word = match word {
                        "true" => true,
                        "false" => false,
                        // `range` and `end` make no sense in a column.
                        _ => return None,
                    };
                    steps.push(Step::Literal(word.into()));
                    after
                }
            };
        }
    }
    Some(steps)
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// Reads a field name, up to a terminator that is not escaped; answers what follows.
fn parse_field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            name.extend(chars.next().map(|(_, c)| c));
        } else if is_terminator(c) {
            end = at;
            break;
        } else {
            name.push(c);
        }
    }
    steps.push(if name == "*" { Step::Wildcard } else { Step::Field(name) });
    &text[end..]
}

fn parse_quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut plain = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            plain.push(chars.next()?.1);
        } else if c == quote {
            return Some((plain, &text[at + c.len_utf8()..]));
        } else {
            plain.push(c);
        }
    }
    None
}

fn parse_brackets(inner: &str, steps: &mut Vec<Step>, depth: usize) -> Option<()> {
    let parts: Vec<&str> = inner.split(',').collect();
    if parts.len() > 1 {
        let each = |part: &&str| parse(&format!("[{}]", part.trim_matches(' ')), depth + 1);
        steps.push(Step::Union(parts.iter().map(each).collect::<Option<_>>()?));
        return Some(());
    }
    // A quoted key is read like the path after a dot: a dot in it still needs a backslash.
    if let Some(key) = inner.strip_prefix('\'').and_then(|key| key.strip_suffix('\'')) {
        steps.extend(parse(&format!(".{key}"), depth + 1)?);
        return Some(());
    }
    let text = if inner == "*" { ":" } else { inner };
    let number = |text: &str| if text.is_empty() { Some(None) } else { text.parse::<i64>().ok().map(Some) };
    let mut pieces = text.split(':');
    let start = number(pieces.next()?)?;
    let end = match pieces.next() {
        None => {
            start?;
            End::One
        }
        Some(text) => number(text)?.map_or(End::Open, End::At),
    };
    let step = pieces.next().map_or(Some(None), number)?.unwrap_or(1);
    if pieces.next().is_some() {
        return None;
    }
    steps.push(Step::Slice { start, end, step });
    Some(())
}

/// Where the parenthesis of a filter closes, outside of quotes.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ')') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), _) if c == q && !escaped => quote = None,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

fn parse_filter(text: &str, depth: usize) -> Option<Step> {
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let Some(at) = text.find(is_operator).filter(|at| *at > 0) else {
        return Some(Step::Filter { left: parse(text, depth + 1)?, test: None });
    };
    let (left, rest) = text.split_at(at);
    let (operator, right) = rest.split_at(rest.find(|c| !is_operator(c))?);
    let comparison = match operator {
        "<" => Comparison::Less,
        ">" => Comparison::Greater,
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<=" => Comparison::LessOrEqual,
        ">=" => Comparison::GreaterOrEqual,
        _ => return None,
    };
    Some(Step::Filter { left: parse(left, depth + 1)?, test: Some((comparison, parse(right, depth + 1)?)) })
}

fn walk<'a>(steps: &'a [Step], start: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
    steps.iter().try_fold(start, |values, step| take(step, values))
}

fn take<'a>(step: &'a Step, values: Vec<&'a Value>) -> Option<Vec<&'a Value>> {
    let mut found = Vec::new();
    match step {
        Step::Field(name) => found.extend(values.into_iter().filter_map(|v| v.as_object()?.get(name))),
        Step::Wildcard => found.extend(values.into_iter().flat_map(children)),
        Step::Literal(literal) => found.extend(values.iter().map(|_| literal)),
        Step::Recursive => {
            let mut pending: Vec<&Value> = values.into_iter().rev().collect();
            while let Some(value) = pending.pop() {
                let inside = children(value);
                if !inside.is_empty() {
                    found.push(value);
                }
                pending.extend(inside.into_iter().rev());
            }
        }
        Step::Union(paths) => {
            for path in paths {
                found.extend(walk(path, values.clone())?);
            }
        }
        Step::Slice { start, end, step } => {
            for value in values.into_iter().filter(|v| !v.is_null()) {
                found.extend(slice(value.as_array()?, *start, *end, *step)?);
            }
        }
        Step::Filter { left, test } => {
            for item in values.into_iter().map(Value::as_array).collect::<Option<Vec<_>>>()?.into_iter().flatten() {
                if passes(item, left, test.as_ref())? {
                    found.push(item);
                }
            }
        }
    }
    Some(found)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

fn slice(items: &[Value], start: Option<i64>, end: End, step: i64) -> Option<impl Iterator<Item = &Value>> {
    let length = i64::try_from(items.len()).ok()?;
    let from_end = |at: i64| if at < 0 { at + length } else { at };
    let start = from_end(start.unwrap_or(0));
    let end = match end {
        End::One => start.checked_add(1)?,
        End::Open => length,
        End::At(end) => from_end(end),
    };
    let range = if start == end { 0..0 } else { usize::try_from(start).ok()?..usize::try_from(end).ok()? };
    let step = usize::try_from(step).ok().filter(|step| *step > 0)?;
    Some(items.get(range)?.iter().step_by(step))
}

fn passes(item: &Value, left: &[Step], test: Option<&(Comparison, Vec<Step>)>) -> Option<bool> {
    let Some((comparison, right)) = test else {
        return Some(walk(left, vec![item]).is_some_and(|found| !found.is_empty()));
    };
    let one = |steps| match walk(steps, vec![item])?.as_slice() {
        [] => Some(None),
        [one] => Some(Some((*one).clone())),
        _ => None,
    };
    let (Some(left), Some(right)) = (one(left)?, one(right)?) else { return Some(false) };
    let order = match (&left, &right) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => a.as_f64()?.partial_cmp(&b.as_f64()?)?,
        // Values of different kinds cannot be compared.
        _ => return None,
    };
    Some(match comparison {
        Comparison::Less => order.is_lt(),
        Comparison::Greater => order.is_gt(),
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::GreaterOrEqual => order.is_ge(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths() {
        let object = json!({"metadata": {"annotations": {"a.b/c": "x"}}, "spec": {"n": 1, "list": [{"k": "a"}, {"k": "b"}],
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False", "n": 3}]}});
        for (path, expected) in [
            (".spec.n", Some(json!([1]))),
            ("$.spec.n", Some(json!([1]))),
            (".spec.none", Some(json!([]))),
            (".spec.none.deeper[0]", Some(json!([]))),
            (r".metadata.annotations.a\.b/c", Some(json!(["x"]))),
            (r".metadata.annotations['a\.b/c']", Some(json!(["x"]))),
            (".spec['n']", Some(json!([1]))),
            (".spec.list[0].k", Some(json!(["a"]))),
            (".spec.list[-1].k", Some(json!(["b"]))),
            (".spec.list[*].k", Some(json!(["a", "b"]))),
            (".spec.list[0:1].k", Some(json!(["a"]))),
            (".spec.list[1:].k", Some(json!(["b"]))),
            (".spec.list[0,1].k", Some(json!(["a", "b"]))),
            (".spec.list[7].k", None),
            (".spec.n[0]", None),
            (r#".spec.conditions[?(@.type=="Ready")].status"#, Some(json!(["True"]))),
            (".spec.conditions[?(@.type == 'Old')].status", Some(json!(["False"]))),
            (".spec.conditions[?(@.type!='Old')].status", Some(json!(["True"]))),
            (".spec.conditions[?(@.n)].type", Some(json!(["Old"]))),
            (".spec.conditions[?(@.n>2)].type", Some(json!(["Old"]))),
            (".spec.conditions[?(@.n=='x')].type", None),
            ("..k", Some(json!(["a", "b"]))),
        ] {
            let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(parsed.find(&object).map(|found| json!(found)), expected, "{path}");
        }
        for wrong in [".a[", ".a[x]", ".a[?(@.b]", "range", "[1:2:3:4]", ".a[?(@.b===1)]", "#"] {
            assert!(JsonPath::parse(wrong).is_none(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(path in "[.\\[\\]?()@a='\"*:,0-9\\\\\u{e9}-]{0,24}") {
            if let Some(path) = JsonPath::parse(&path) {
                path.find(&json!({"a": [{"a": 1}, [2, "a"]]}));
            }
        }
    }
}
