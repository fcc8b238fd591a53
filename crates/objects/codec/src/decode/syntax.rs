//! What Go's JSON scanner says about a body that is not JSON.

/// The error of the first wrong byte, or `None` for a body that is right by the grammar.
pub(super) fn explain(body: &[u8]) -> Option<String> {
    Scanner { body, at: 0, stack: Vec::new() }.run().err()
}

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
    /// The brackets that are open. On the heap, so that no nesting is too deep for it.
    stack: Vec<u8>,
}

type Scan<T = ()> = Result<T, String>;

impl Scanner<'_> {
    fn run(mut self) -> Scan {
        loop {
            self.value()?;
            // A value is complete: close what ends here, until something more has to follow.
            loop {
                self.space();
                match (self.stack.last(), self.peek()) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(self.wrong("after top-level value")),
                    (Some(_), None) => return Err(end()),
                    (Some(b'['), Some(b',')) => {
                        self.at += 1;
                        break;
                    }
                    (Some(b'{'), Some(b',')) => {
                        self.at += 1;
                        self.space();
                        self.key("looking for beginning of object key string")?;
                        break;
                    }
                    (Some(b'['), Some(b']')) | (Some(b'{'), Some(b'}')) => {
                        self.at += 1;
                        self.stack.pop();
                    }
                    (Some(b'['), _) => return Err(self.wrong("after array element")),
                    (Some(_), _) => return Err(self.wrong("after object key:value pair")),
                }
            }
        }
    }

    /// Up to the end of a scalar, or past the opening of containers down to the first scalar or empty container.
    fn value(&mut self) -> Scan {
        loop {
            self.space();
            match self.peek() {
                None => return Err(end()),
                Some(open @ (b'[' | b'{')) => {
                    self.at += 1;
                    self.space();
                    let close = if open == b'[' { b']' } else { b'}' };
                    if self.peek() == Some(close) {
                        self.at += 1;
                        return Ok(());
                    }
                    self.stack.push(open);
                    if open == b'{' {
                        self.key("looking for beginning of object key string")?;
                    }
                }
                Some(b'"') => return self.string(),
                Some(b't') => return self.literal("true"),
                Some(b'f') => return self.literal("false"),
                Some(b'n') => return self.literal("null"),
                Some(b'-' | b'0'..=b'9') => return self.number(),
                Some(_) => return Err(self.wrong("looking for beginning of value")),
            }
        }
    }

    fn key(&mut self, context: &str) -> Scan {
        match self.peek() {
            None => return Err(end()),
            Some(b'"') => self.string()?,
            Some(_) => return Err(self.wrong(context)),
        }
        self.space();
        match self.peek() {
            None => Err(end()),
            Some(b':') => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.wrong("after object key")),
        }
    }

    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            if !self.next()?.is_ascii_hexdigit() {
                                return Err(self.wrong_last("in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    _ => return Err(self.wrong_last("in string escape code")),
                },
                0..0x20 => return Err(self.wrong_last("in string literal")),
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &str) -> Scan {
        for expected in word.bytes() {
            if self.next()? != expected {
                let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(self.wrong_last(&context));
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.next()? {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return Err(self.wrong_last("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !self.next()?.is_ascii_digit() {
                return Err(self.wrong_last("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.next()?.is_ascii_digit() {
                return Err(self.wrong_last("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn next(&mut self) -> Scan<u8> {
        let byte = self.peek().ok_or_else(end)?;
        self.at += 1;
        Ok(byte)
    }

    fn wrong(&self, context: &str) -> String {
        format!("invalid character {} {context}", quoted(self.peek().unwrap_or_default()))
    }

    fn wrong_last(&mut self, context: &str) -> String {
        self.at = self.at.saturating_sub(1);
        self.wrong(context)
    }
}

fn end() -> String {
    "unexpected end of JSON input".to_owned()
}

/// A byte as Go's decoder shows it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        7 => r"'\a'".to_owned(),
        8 => r"'\b'".to_owned(),
        11 => r"'\v'".to_owned(),
        12 => r"'\f'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        _ => format!("'{}'", char::from(byte)),
    }
}
