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

/// A token, and where it is in the text, in characters.
#[derive(Clone, Debug)]
pub struct Lexed {
    pub at: usize,
    pub end: usize,
    pub token: Token,
}

/// The tokens, and what is none.
pub fn tokens(chars: &[char]) -> (Vec<Lexed>, Vec<Problem>) {
    let mut lexer = Lexer { chars, at: 0, problems: Vec::new() };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space();
        let at = lexer.at;
        match lexer.next() {
            Ok(token) => {
                let last = token == Token::End;
                tokens.push(Lexed { at, end: lexer.at, token });
                if last {
                    return (tokens, lexer.problems);
                }
            }
            Err(problem) => lexer.problems.push(problem),
        }
    }
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
    problems: Vec<Problem>,
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
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-/ ".contains(c);
            let start = self.at + 1;
            let end = (start..self.chars.len()).find(|i| !allowed(self.chars[*i])).unwrap_or(self.chars.len());
            if end == start || self.chars.get(end) != Some(&'`') {
                return Err(self.unrecognized(end));
            }
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
        // Half of a sign is noticed only at the next character.
        Err(self.unrecognized(self.at + usize::from(matches!(c, '&' | '|' | '='))))
    }

    /// What starts like a token and is none: everything up to the character that fits no token is skipped.
    fn unrecognized(&mut self, until: usize) -> Problem {
        let start = self.at;
        self.at = self.chars.len().min(until + 1);
        let text: String = self.chars[start..self.at].iter().collect();
        let text = text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
        Problem::new(start, format!("Syntax error: token recognition error at: '{text}'"))
    }

    fn number(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        let hex = self.peek(0) == Some('0')
            && self.peek(1) == Some('x')
            && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit());
        if hex {
            self.at += 2;
            let digits = self.run(|c| c.is_ascii_hexdigit());
            return Ok(self.integer(u64::from_str_radix(&digits, 16).ok(), start));
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
            let number = digits.parse::<f64>().ok().filter(|number| number.is_finite());
            return Ok(number.map_or_else(|| self.too_large("double", start), Token::Double));
        }
        Ok(self.integer(digits.parse().ok(), start))
    }

    fn integer(&mut self, value: Option<u64>, start: usize) -> Token {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return value.map_or_else(|| self.too_large("uint", start), Token::Uint);
        }
        match value.map(|value| (value, i64::try_from(value))) {
            Some((_, Ok(value))) => Token::Int(value),
            Some((value, Err(_))) if value == 1 << 63 => Token::Magnitude(value),
            _ => self.too_large("int", start),
        }
    }

    /// A number that does not fit is one all the same, so that parsing goes on.
    fn too_large(&mut self, what: &str, start: usize) -> Token {
        self.problems.push(Problem::new(start, format!("invalid {what} literal")));
        Token::Int(0)
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
                // Bytes may be raw, but what is raw is never bytes.
                'b' | 'B' if !bytes && !raw => bytes = true,
                'r' | 'R' if !raw => raw = true,
                '"' | '\'' => break,
                _ => return Ok(None),
            }
            ahead += 1;
        }
        let Some(quote) = self.peek(ahead) else { return Ok(None) };
        let start = self.at;
        let triple = self.peek(ahead + 1) == Some(quote) && self.peek(ahead + 2) == Some(quote);
        let mut read = self.quoted(start + ahead, quote, raw, bytes, triple);
        if read.is_err() && triple {
            // Two quotes are a text too.
            read = self.quoted(start + ahead, quote, raw, bytes, false);
        }
        match read {
            Ok((out, end)) => {
                self.at = end;
                Ok(Some(match bytes {
                    true => Token::Bytes(out),
                    false => Token::Text(String::from_utf8_lossy(&out).into_owned()),
                }))
            }
            // The letters before the quote are a name.
            Err(_) if ahead > 0 => Ok(None),
            Err(wrong) => Err(self.unrecognized(wrong)),
        }
    }

    /// The text from a quote to the next, and where that ends; or where it cannot go on.
    fn quoted(
        &self,
        start: usize,
        quote: char,
        raw: bool,
        bytes: bool,
        triple: bool,
    ) -> Result<(Vec<u8>, usize), usize> {
        let width = if triple { 3 } else { 1 };
        let mut at = start + width;
        let mut out: Vec<u8> = Vec::new();
        loop {
            let c = *self.chars.get(at).ok_or(at)?;
            if c == quote && (0..width).all(|i| self.chars.get(at + i) == Some(&quote)) {
                return Ok((out, at + width));
            }
            if !triple && matches!(c, '\n' | '\r') {
                return Err(at);
            }
            at += 1;
            match c == '\\' && !raw {
                true => at = self.escape(at, bytes, &mut out)?,
                false => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }

    /// What is behind a backslash. Answers where it ends; or where it cannot go on.
    fn escape(&self, at: usize, bytes: bool, out: &mut Vec<u8>) -> Result<usize, usize> {
        let c = *self.chars.get(at).ok_or(at)?;
        let plain = match c {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(b'\n'),
            'r' => Some(b'\r'),
            't' => Some(b'\t'),
            'v' => Some(11),
            '\\' | '\'' | '"' | '`' | '?' => Some(c as u8),
            _ => None,
        };
        if let Some(byte) = plain {
            out.push(byte);
            return Ok(at + 1);
        }
        let (start, digits, radix) = match c {
            'x' | 'X' => (at + 1, 2, 16),
            'u' if !bytes => (at + 1, 4, 16),
            'U' if !bytes => (at + 1, 8, 16),
            '0'..='3' => (at, 3, 8),
            _ => return Err(at),
        };
        let mut code = 0u32;
        for position in start..start + digits {
            let digit = self.chars.get(position).and_then(|c| c.to_digit(radix)).ok_or(position)?;
            code = code.wrapping_mul(radix) + digit;
        }
        let end = start + digits;
        match bytes {
            true => out.push(u8::try_from(code).map_err(|_| end)?),
            false => {
                let c = char::from_u32(code).ok_or(end)?;
                out.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        Ok(end)
    }
}
