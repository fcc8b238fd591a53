//! From tokens to the syntax tree.

use super::Problem;
use super::syntax::{Expr, Kind, Macro, MacroName};
use super::token::{Lexed, Token, tokens};

/// How deep parentheses, calls and operators may nest while parsing, which goes through many functions per level.
const MAX_DEPTH: usize = 64;
const MAX_LENGTH: usize = 64 * 1024;
/// How many mistakes are told.
const MAX_PROBLEMS: usize = 100;

pub(super) const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The syntax tree, or all that is wrong with the text, by place.
pub fn parse(source: &str) -> Result<Expr, Vec<Problem>> {
    if source.len() > MAX_LENGTH {
        let message = format!("expression code point size exceeds limit: size: {}, limit {MAX_LENGTH}", source.len());
        return Err(vec![Problem::new(0, message)]);
    }
    let chars: Vec<char> = source.chars().collect();
    let (tokens, problems) = tokens(&chars);
    let mut parser = Parser { chars: &chars, tokens, problems, open: Vec::new(), next: 0, depth: 0 };
    let parsed = match parser.expression() {
        Ok(expr) => {
            parser.finish();
            Some(expr)
        }
        Err(problem) => {
            parser.problems.push(problem);
            None
        }
    };
    let mut problems = parser.problems;
    match parsed.filter(|_| problems.is_empty()) {
        Some(expr) => Ok(expr),
        None => {
            problems.sort_by_key(|problem| problem.at);
            problems.truncate(MAX_PROBLEMS);
            Err(problems)
        }
    }
}

pub(super) struct Parser<'s> {
    pub(super) chars: &'s [char],
    pub(super) tokens: Vec<Lexed>,
    pub(super) problems: Vec<Problem>,
    /// The signs that close what is open, innermost last.
    pub(super) open: Vec<&'static str>,
    pub(super) next: usize,
    depth: usize,
}

fn call(at: usize, name: &str, args: Vec<Expr>) -> Result<Expr, Problem> {
    Expr::new(at, Kind::Call { target: None, name: name.to_owned(), args })
}

impl Parser<'_> {
    pub(super) fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |lexed| &lexed.token)
    }

    pub(super) fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |lexed| lexed.at)
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    pub(super) fn take(&mut self, sign: &str) -> Option<usize> {
        let at = self.at();
        if matches!(self.peek(), Token::Sign(s) if *s == sign) {
            self.next += 1;
            return Some(at);
        }
        None
    }

    /// Parses something that a sign closes.
    fn within<T>(
        &mut self,
        close: &'static str,
        inner: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        self.open.push(close);
        let result = inner(self);
        self.open.pop();
        result
    }

    fn deeper<T>(&mut self, go: impl FnOnce(&mut Self) -> Result<T, Problem>) -> Result<T, Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Problem::new(self.at(), "expression recursion limit exceeded".to_owned()));
        }
        let result = go(self);
        self.depth -= 1;
        result
    }

    fn expression(&mut self) -> Result<Expr, Problem> {
        self.deeper(|p| {
            let condition = p.or()?;
            let Some(at) = p.take("?") else { return Ok(condition) };
            let yes = p.or()?;
            p.expect(":")?;
            let no = p.expression()?;
            Expr::new(at, Kind::If(Box::new([condition, yes, no])))
        })
    }

    fn or(&mut self) -> Result<Expr, Problem> {
        let mut terms = vec![self.and()?];
        let mut signs = Vec::new();
        while let Some(at) = self.take("||") {
            signs.push(at);
            terms.push(self.and()?);
        }
        balanced(terms, &signs, &|at, a, b| Expr::new(at, Kind::Or(a, b)))
    }

    fn and(&mut self) -> Result<Expr, Problem> {
        let mut terms = vec![self.relation()?];
        let mut signs = Vec::new();
        while let Some(at) = self.take("&&") {
            signs.push(at);
            terms.push(self.relation()?);
        }
        balanced(terms, &signs, &|at, a, b| Expr::new(at, Kind::And(a, b)))
    }

    fn relation(&mut self) -> Result<Expr, Problem> {
        let mut left = self.sum()?;
        loop {
            let at = self.at();
            let name = match self.peek() {
                Token::Sign("==") => "_==_",
                Token::Sign("!=") => "_!=_",
                Token::Sign("<") => "_<_",
                Token::Sign("<=") => "_<=_",
                Token::Sign(">") => "_>_",
                Token::Sign(">=") => "_>=_",
                Token::Ident(word) if word == "in" => "@in",
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.sum()?;
            left = call(at, name, vec![left, right])?;
        }
    }

    fn sum(&mut self) -> Result<Expr, Problem> {
        let mut left = self.product()?;
        loop {
            let (at, name) = match (self.take("+"), self.next) {
                (Some(at), _) => (at, "_+_"),
                (None, _) => match self.take("-") {
                    Some(at) => (at, "_-_"),
                    None => return Ok(left),
                },
            };
            let right = self.product()?;
            left = call(at, name, vec![left, right])?;
        }
    }

    fn product(&mut self) -> Result<Expr, Problem> {
        let mut left = self.unary()?;
        loop {
            let at = self.at();
            let name = match self.peek() {
                Token::Sign("*") => "_*_",
                Token::Sign("/") => "_/_",
                Token::Sign("%") => "_%_",
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.unary()?;
            left = call(at, name, vec![left, right])?;
        }
    }

    fn unary(&mut self) -> Result<Expr, Problem> {
        self.deeper(|p| {
            if let Some(at) = p.take("!") {
                let of = p.unary()?;
                return call(at, "!_", vec![of]);
            }
            if let Some(at) = p.take("-") {
                let literal = match p.peek() {
                    Token::Int(n) => Some(Kind::Int(n.wrapping_neg())),
                    Token::Magnitude(_) => Some(Kind::Int(i64::MIN)),
                    Token::Double(d) => Some(Kind::Double(-d)),
                    _ => None,
                };
                if let Some(kind) = literal {
                    p.next += 1;
                    let literal = Expr::new(at, kind)?;
                    return p.members(literal);
                }
                p.at_operand("-")?;
                let of = p.unary()?;
                return call(at, "-_", vec![of]);
            }
            p.at_start(&[])?;
            let primary = p.primary()?;
            p.members(primary)
        })
    }

    fn members(&mut self, mut expr: Expr) -> Result<Expr, Problem> {
        loop {
            if let Some(at) = self.take(".") {
                let optional = self.take("?").is_some();
                let field = match self.advance() {
                    Token::Ident(name) | Token::Quoted(name) => name,
                    _ => {
                        self.next -= 1;
                        return Err(self.not_viable("."));
                    }
                };
                let open = self.at();
                if !optional && self.take("(").is_some() {
                    let args = self.within(")", Self::arguments)?;
                    expr = self.member_call(open, expr, field, args)?;
                } else {
                    expr = Expr::new(at, Kind::Select { of: Box::new(expr), field, optional })?;
                }
            } else if let Some(at) = self.take("[") {
                let optional = self.take("?").is_some();
                let by = self.within("]", |p| {
                    p.at_start(if optional { &[] } else { &["?"] })?;
                    let by = p.expression()?;
                    p.expect("]")?;
                    Ok(by)
                })?;
                let by = Box::new(by);
                expr = Expr::new(at, Kind::Index { of: Box::new(expr), by, optional })?;
            } else if let Some(name) = message_name(&expr).filter(|_| matches!(self.peek(), Token::Sign("{"))) {
                let at = self.at();
                self.next += 1;
                let fields = self.within("}", Self::fields)?;
                expr = Expr::new(at, Kind::Message(name, fields))?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn member_call(&self, at: usize, target: Expr, name: String, args: Vec<Expr>) -> Result<Expr, Problem> {
        if matches!(&target.kind, Kind::Ident(ident) if ident == "cel") && name == "bind" && args.len() == 3 {
            return self.bound(at, MacroName::Bind, None, args, 1);
        }
        match MacroName::find(&name, args.len()) {
            Some((found, binds)) => self.bound(at, found, Some(target), args, binds),
            None => Expr::new(at, Kind::Call { target: Some(Box::new(target)), name, args }),
        }
    }

    /// A macro whose first arguments must be names.
    fn bound(
        &self,
        at: usize,
        name: MacroName,
        over: Option<Expr>,
        args: Vec<Expr>,
        binds: usize,
    ) -> Result<Expr, Problem> {
        let mut args = args.into_iter();
        let mut names = Vec::new();
        for arg in args.by_ref().take(binds) {
            match arg.kind {
                Kind::Ident(ident) => names.push(ident),
                _ => return Err(Problem::new(arg.at, "argument must be a simple name".to_owned())),
            }
        }
        let over = match over {
            Some(over) => over,
            None => args.next().ok_or_else(|| Problem::new(at, "missing argument".to_owned()))?,
        };
        let mut names = names.into_iter();
        let first = names.next().unwrap_or_default();
        let call = Macro { name, over, first, second: names.next(), bodies: args.collect() };
        Expr::new(at, Kind::Macro(Box::new(call)))
    }

    /// The arguments of a call, behind the parenthesis.
    fn arguments(&mut self) -> Result<Vec<Expr>, Problem> {
        let mut items = Vec::new();
        self.at_start(&[")"])?;
        if self.take(")").is_some() {
            return Ok(items);
        }
        loop {
            items.push(self.expression()?);
            if self.take(",").is_none() {
                self.expect(")")?;
                return Ok(items);
            }
        }
    }

    /// What a minus stands before.
    fn at_operand(&mut self, sign: &str) -> Result<(), Problem> {
        match self.peek() {
            Token::End => Err(self.not_viable(sign)),
            _ => Ok(()),
        }
    }

    fn primary(&mut self) -> Result<Expr, Problem> {
        let at = self.at();
        let token = self.advance();
        let kind = match token {
            Token::Int(n) => Kind::Int(n),
            Token::Uint(n) => Kind::Uint(n),
            Token::Double(d) => Kind::Double(d),
            Token::Text(text) => Kind::Text(text.into()),
            Token::Bytes(bytes) => Kind::Bytes(bytes.into()),
            Token::Sign("(") => {
                return self.within(")", |p| {
                    let inner = p.expression()?;
                    p.expect(")")?;
                    Ok(inner)
                });
            }
            Token::Sign("[") => Kind::List(self.within("]", Self::elements)?),
            Token::Sign("{") => Kind::Map(self.within("}", Self::entries)?),
            Token::Sign(".") if matches!(self.peek(), Token::Ident(_)) => return self.primary(),
            Token::Sign(".") => return Err(self.not_viable(".")),
            Token::Ident(word) => return self.word(at, word),
            _ => {
                self.next -= 1;
                self.at_start(&[])?;
                return Err(Problem::new(at, "invalid int literal".to_owned()));
            }
        };
        Expr::new(at, kind)
    }

    fn word(&mut self, at: usize, word: String) -> Result<Expr, Problem> {
        let kind = match word.as_str() {
            "true" => Kind::Bool(true),
            "false" => Kind::Bool(false),
            "null" => Kind::Null,
            _ if RESERVED.contains(&word.as_str()) => {
                return Err(Problem::new(at, format!("reserved identifier: {word}")));
            }
            _ => {
                let open = self.at();
                if self.take("(").is_none() {
                    return Expr::new(at, Kind::Ident(word));
                }
                let mut args = self.within(")", Self::arguments)?;
                if word == "has" && args.len() == 1 {
                    let argument = args.remove(0);
                    return match argument.kind {
                        Kind::Select { of, field, optional: false } => Expr::new(open, Kind::Has { of, field }),
                        _ => Err(Problem::new(argument.at, "invalid argument to has() macro".to_owned())),
                    };
                }
                return Expr::new(open, Kind::Call { target: None, name: word, args });
            }
        };
        Expr::new(at, kind)
    }

    /// Whether a list, map or message ends at once: with its sign, or a comma before that.
    fn nothing(&mut self, close: &'static str) -> Result<bool, Problem> {
        if self.take(",").is_some() {
            self.expect(close)?;
            return Ok(true);
        }
        Ok(self.take(close).is_some())
    }

    /// Whether another element follows: there is a comma, and it is not the last sign before the end.
    fn another(&mut self, close: &'static str) -> Result<bool, Problem> {
        if self.take(",").is_none() {
            self.close(close)?;
            return Ok(false);
        }
        if matches!(self.peek(), Token::Sign(sign) if *sign == close || *sign == ",") {
            self.expect(close)?;
            return Ok(false);
        }
        Ok(true)
    }

    fn elements(&mut self) -> Result<Vec<(Expr, bool)>, Problem> {
        let mut items = Vec::new();
        self.at_start(&["]", ",", "?"])?;
        if self.nothing("]")? {
            return Ok(items);
        }
        loop {
            let optional = self.take("?").is_some();
            items.push((self.expression()?, optional));
            if !self.another("]")? {
                return Ok(items);
            }
        }
    }

    /// The fields of a message, which is a map whose keys are written without quotes.
    fn fields(&mut self) -> Result<Vec<(Expr, Expr, bool)>, Problem> {
        let mut entries = Vec::new();
        self.at_field()?;
        if self.nothing("}")? {
            return Ok(entries);
        }
        loop {
            let optional = self.take("?").is_some();
            let at = self.at();
            let name = match self.advance() {
                Token::Ident(name) | Token::Quoted(name) => name,
                _ => {
                    self.next -= 1;
                    return Err(self.mismatched("{IDENTIFIER, ESC_IDENTIFIER}"));
                }
            };
            self.expect(":")?;
            let key = Expr::new(at, Kind::Text(super::json::unescape(&name).into()))?;
            entries.push((key, self.expression()?, optional));
            if !self.another("}")? {
                return Ok(entries);
            }
        }
    }

    fn entries(&mut self) -> Result<Vec<(Expr, Expr, bool)>, Problem> {
        let mut entries = Vec::new();
        self.at_start(&["}", ",", "?"])?;
        if self.nothing("}")? {
            return Ok(entries);
        }
        loop {
            let optional = self.take("?").is_some();
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?, optional));
            if !self.another("}")? {
                return Ok(entries);
            }
        }
    }
}

/// The name of the type that messages are made of in admission policies: `Object.spec`, `JSONPatch`.
fn message_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => matches!(name.as_str(), "Object" | "JSONPatch").then(|| name.clone()),
        Kind::Select { of, field, optional: false } => {
            let of = message_name(of).filter(|of| of != "JSONPatch")?;
            Some(format!("{of}.{}", super::json::unescape(field)))
        }
        _ => None,
    }
}

/// Long chains of `&&` and `||` become a balanced tree, so that they do not nest deep.
fn balanced(
    mut terms: Vec<Expr>,
    signs: &[usize],
    join: &dyn Fn(usize, Box<Expr>, Box<Expr>) -> Result<Expr, Problem>,
) -> Result<Expr, Problem> {
    if terms.len() <= 1 {
        return terms.pop().map_or_else(|| Expr::new(0, Kind::Null), Ok);
    }
    let middle = terms.len() / 2;
    let right = terms.split_off(middle);
    let at = signs[middle - 1];
    let left = balanced(terms, &signs[..middle - 1], join)?;
    let right = balanced(right, &signs[middle..], join)?;
    join(at, Box::new(left), Box::new(right))
}
