//! From the text of an expression to tokens.

use super::Problem;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Ident(String),
    /// A name in backquotes, allowed after a dot.
    Quoted(String),
    Int(i64),
    /// `9223372036854775808`, which is an integer only after a minus.
    Magnitude(u64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Sign(&'static str),
    End,
}

const SIGNS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")", "[", "]",
    "{", "}",
];

/// The tokens with their offsets in characters.
pub fn tokens(source: &str) -> Result<Vec<(usize, Token)>, Problem> {
    let chars: Vec<char> = source.chars().collect();
    let mut lexer = Lexer { chars: &chars, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space();
        let at = lexer.at;
        let token = lexer.next()?;
        let end = token == Token::End;
        tokens.push((at, token));
        if end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn skip_space(&mut self) {
        loop {
            match self.peek(0) {
                Some(' ' | '\t' | '\r' | '\n' | '\u{c}') => self.at += 1,
                Some('/') if self.peek(1) == Some('/') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn next(&mut self) -> Result<Token, Problem> {
        let Some(c) = self.peek(0) else { return Ok(Token::End) };
        if let Some(string) = self.string()? {
            return Ok(string);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            let start = self.at;
            while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                self.at += 1;
            }
            return Ok(Token::Ident(self.chars[start..self.at].iter().collect()));
        }
        if c == '`' {
            let start = self.at + 1;
            let end = (start..self.chars.len()).find(|i| self.chars[*i] == '`');
            let end = end.ok_or_else(|| self.unexpected(c))?;
            self.at = end + 1;
            return Ok(Token::Quoted(self.chars[start..end].iter().collect()));
        }
        if c.is_ascii_digit() || (c == '.' && self.peek(1).is_some_and(|d| d.is_ascii_digit())) {
            return self.number();
        }
        for sign in SIGNS {
            if sign.chars().enumerate().all(|(i, s)| self.peek(i) == Some(s)) {
                self.at += sign.len();
                return Ok(Token::Sign(sign));
            }
        }
        Err(self.unexpected(c))
    }

    fn unexpected(&self, c: char) -> Problem {
        Problem::new(self.at, format!("Syntax error: token recognition error at: '{c}'"))
    }

    fn number(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        let bad = |at: usize, what: &str| Problem::new(at, format!("Syntax error: invalid {what} literal"));
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.at += 2;
            let digits = self.run(|c| c.is_ascii_hexdigit());
            let value = u64::from_str_radix(&digits, 16).map_err(|_| bad(start, "int"))?;
            return self.integer(value, start);
        }
        let mut digits = self.run(|c| c.is_ascii_digit());
        let mut float = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            float = true;
            self.at += 1;
            digits = format!("{digits}.{}", self.run(|c| c.is_ascii_digit()));
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + signed).is_some_and(|c| c.is_ascii_digit()) {
                float = true;
                let sign = if self.peek(1) == Some('-') { "-" } else { "" };
                self.at += 1 + signed;
                digits = format!("{digits}e{sign}{}", self.run(|c| c.is_ascii_digit()));
            }
        }
        if float {
            return digits.parse().map(Token::Double).map_err(|_| bad(start, "double"));
        }
        let value = digits.parse::<u64>().map_err(|_| bad(start, "int"))?;
        self.integer(value, start)
    }

    fn integer(&mut self, value: u64, start: usize) -> Result<Token, Problem> {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return Ok(Token::Uint(value));
        }
        match i64::try_from(value) {
            Ok(value) => Ok(Token::Int(value)),
            Err(_) if value == 1 << 63 => Ok(Token::Magnitude(value)),
            Err(_) => Err(Problem::new(start, "Syntax error: invalid int literal".to_owned())),
        }
    }

    fn run(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(&wanted) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    /// A string or bytes literal, if one starts here.
    fn string(&mut self) -> Result<Option<Token>, Problem> {
        let (mut raw, mut bytes, mut ahead) = (false, false, 0);
        while let Some(c) = self.peek(ahead) {
            match c {
                'r' | 'R' if !raw => raw = true,
                'b' | 'B' if !bytes => bytes = true,
                '"' | '\'' => break,
                _ => return Ok(None),
            }
            ahead += 1;
        }
        let Some(quote) = self.peek(ahead) else { return Ok(None) };
        let start = self.at;
        self.at += ahead;
        let triple = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let width = if triple { 3 } else { 1 };
        self.at += width;
        let mut out: Vec<u8> = Vec::new();
        loop {
            let unfinished = || Problem::new(start, format!("Syntax error: token recognition error at: '{quote}'"));
            let c = self.peek(0).ok_or_else(unfinished)?;
            if c == quote && (!triple || (self.peek(1) == Some(quote) && self.peek(2) == Some(quote))) {
                self.at += width;
                break;
            }
            if !triple && matches!(c, '\n' | '\r') {
                return Err(unfinished());
            }
            self.at += 1;
            if c == '\\' && !raw {
                self.escape(bytes, &mut out)?;
            } else {
                out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        if bytes {
            return Ok(Some(Token::Bytes(out)));
        }
        Ok(Some(Token::Text(String::from_utf8_lossy(&out).into_owned())))
    }

    fn escape(&mut self, bytes: bool, out: &mut Vec<u8>) -> Result<(), Problem> {
        let at = self.at;
        let bad = || Problem::new(at, "Syntax error: invalid escape sequence".to_owned());
        let c = self.peek(0).ok_or_else(bad)?;
        self.at += 1;
        let (digits, radix) = match c {
            'a' => return put(out, 7),
            'b' => return put(out, 8),
            'f' => return put(out, 12),
            'n' => return put(out, b'\n'),
            'r' => return put(out, b'\r'),
            't' => return put(out, b'\t'),
            'v' => return put(out, 11),
            '\\' | '\'' | '"' | '`' | '?' => return put(out, c as u8),
            'x' | 'X' => (2, 16),
            'u' if !bytes => (4, 16),
            'U' if !bytes => (8, 16),
            '0'..='3' => {
                self.at -= 1;
                (3, 8)
            }
            _ => return Err(bad()),
        };
        let text: String = self.chars.iter().skip(self.at).take(digits).collect();
        let code = u32::from_str_radix(&text, radix).ok().filter(|_| text.chars().count() == digits).ok_or_else(bad)?;
        self.at += digits;
        if bytes {
            return put(out, u8::try_from(code).map_err(|_| bad())?);
        }
        let c = char::from_u32(code).ok_or_else(bad)?;
        out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }
}

fn put(out: &mut Vec<u8>, byte: u8) -> Result<(), Problem> {
    out.push(byte);
    Ok(())
}
