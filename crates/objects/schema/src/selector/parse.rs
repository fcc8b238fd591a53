//! The grammar of label selectors: a lexer and a descent over its tokens, with upstream's words for what is wrong.
//!
//! `in` and `notin` are keywords only where an operator is expected; elsewhere they are ordinary identifiers.

use std::collections::BTreeSet;

use super::labels::{Operator, Requirement};
use crate::field::FieldError;
use crate::names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    Parser { tokens: lex(text), position: 0 }.selector()
}

fn lex(text: &str) -> Vec<(Token, &str)> {
    let bytes = text.as_bytes();
    let special = |b: u8| matches!(b, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<');
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            at += 1;
            continue;
        }
        // Upstream's reader cannot tell a NUL from the end of the text.
        if byte == 0 {
            break;
        }
        let token = match (byte, bytes.get(at + 1)) {
            (b'=', Some(b'=')) => Some((Token::DoubleEquals, 2)),
            (b'!', Some(b'=')) => Some((Token::NotEquals, 2)),
            (b'=', _) => Some((Token::Equals, 1)),
            (b'!', _) => Some((Token::Not, 1)),
            (b'(', _) => Some((Token::Open, 1)),
            (b')', _) => Some((Token::Close, 1)),
            (b',', _) => Some((Token::Comma, 1)),
            (b'>', _) => Some((Token::Greater, 1)),
            (b'<', _) => Some((Token::Less, 1)),
            _ => None,
        };
        if let Some((token, length)) = token {
            at += length;
            tokens.push((token, &text[start..at]));
            continue;
        }
        let ends = |b: &u8| special(*b) || matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0);
        at += bytes[start..].iter().position(ends).unwrap_or(bytes.len() - start);
        let word = &text[start..at];
        let token = match word {
            "in" => Token::In,
            "notin" => Token::NotIn,
            _ => Token::Identifier,
        };
        tokens.push((token, word));
        // A NUL that ends a word is swallowed with it.
        if bytes.get(at) == Some(&0) {
            at += 1;
        }
    }
    tokens.push((Token::End, ""));
    tokens
}

struct Parser<'a> {
    tokens: Vec<(Token, &'a str)>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek_raw(&self) -> (Token, &'a str) {
        self.tokens.get(self.position).copied().unwrap_or((Token::End, ""))
    }

    /// The next token where keywords are plain words.
    fn peek(&self) -> (Token, &'a str) {
        match self.peek_raw() {
            (Token::In | Token::NotIn, word) => (Token::Identifier, word),
            other => other,
        }
    }

    fn next(&mut self) -> (Token, &'a str) {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn selector(mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (Token::Identifier | Token::Not, _) => {}
                (Token::End, _) => return Ok(requirements),
                (_, word) => return Err(format!("found '{word}', expected: !, identifier, or 'end of string'")),
            }
            let requirement = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
            requirements.push(requirement);
            match self.next() {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => {
                    let (token, word) = self.peek();
                    if !matches!(token, Token::Identifier | Token::Not) {
                        return Err(format!("found '{word}', expected: identifier after ','"));
                    }
                }
                (_, word) => return Err(format!("found '{word}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next();
        }
        if token != Token::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let complaints = names::qualified_name(key);
        if !complaints.is_empty() {
            return Err(FieldError::invalid("", &key.into(), &complaints.join("; ")).to_string());
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => BTreeSet::from([self.value()?]),
        };
        Requirement::new(key, operator, values.into_iter().map(str::to_owned).collect())
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let (token, word) = self.peek_raw();
        self.position += 1;
        match token {
            Token::In => Ok(Operator::In),
            Token::NotIn => Ok(Operator::NotIn),
            Token::Equals => Ok(Operator::Equals),
            Token::DoubleEquals => Ok(Operator::DoubleEquals),
            Token::NotEquals => Ok(Operator::NotEquals),
            Token::Greater => Ok(Operator::GreaterThan),
            Token::Less => Ok(Operator::LessThan),
            _ => Err(format!("found '{word}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// `(x,y)`. Empty places are the empty value: `()`, `(,x)` and `(x,,y)` all contain it.
    fn values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let (token, word) = self.next();
        if token != Token::Open {
            return Err(format!("found '{word}' expected: '('"));
        }
        match self.peek() {
            (Token::Identifier | Token::Comma, _) => {
                let values = self.identifiers()?;
                // The list only ends before a closing parenthesis.
                self.position += 1;
                Ok(values)
            }
            (Token::Close, _) => {
                self.position += 1;
                Ok(BTreeSet::from([""]))
            }
            (_, word) => Err(format!("found '{word}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                (Token::Identifier, word) => {
                    values.insert(word);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, word) => return Err(format!("found '{word}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.insert("");
                    }
                    match self.peek().0 {
                        Token::Close => {
                            values.insert("");
                            return Ok(values);
                        }
                        Token::Comma => {
                            values.insert("");
                        }
                        _ => {}
                    }
                }
                (_, word) => return Err(format!("found '{word}', expected: ',', or identifier")),
            }
        }
    }

    fn value(&mut self) -> Result<&'a str, String> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok("");
        }
        match self.next() {
            (Token::Identifier, word) => Ok(word),
            (_, word) => Err(format!("found '{word}', expected: identifier")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_upstreams_words() {
        let key = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                   character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                   '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                     regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        for (text, expected) in [
            ("a in", "unable to parse requirement: found '' expected: '('".to_owned()),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'".to_owned()),
            ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'".to_owned()),
            ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier".to_owned()),
            ("a in (b,=)", "unable to parse requirement: found '=', expected: ',', or identifier".to_owned()),
            ("a=b c!", "found 'c', expected: ',' or 'end of string'".to_owned()),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
            ("a=!b", "unable to parse requirement: found '!', expected: identifier".to_owned()),
            ("!", "unable to parse requirement: found '', expected: identifier".to_owned()),
            ("!a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
            ("a,", "found '', expected: identifier after ','".to_owned()),
            (",a", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
            ("-a", format!("unable to parse requirement: <nil>: Invalid value: \"-a\": name part {key}")),
            ("a=b@", format!("unable to parse requirement: values[0][a]: Invalid value: \"b@\": {value}")),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value \
                 must be an integer"
                    .to_owned(),
            ),
            (
                "/a",
                "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty".to_owned(),
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected, "{text}");
        }
    }
}
