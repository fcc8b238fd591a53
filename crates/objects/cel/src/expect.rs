//! What is said of a text that is no expression, and how parsing goes on behind the first mistake.
//!
//! Upstream's parser is generated. Where a token cannot be, it leaves the token out if the next one can be there, and
//! takes a missing token for granted if what follows it is there. It says what it expected at that place.

use super::Problem;
use super::parse::Parser;
use super::token::Token;

/// Tokens with which an expression starts, with those that may stand there instead in the order of upstream's grammar.
fn starts(extra: &[&str]) -> String {
    let order = ["[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?"];
    let always = ["[", "{", "(", ".", "-", "!"];
    let signs = order.iter().filter(|sign| always.contains(sign) || extra.contains(sign)).map(|s| format!("'{s}', "));
    let signs: String = signs.collect();
    format!("{{{signs}'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}}")
}

/// Whether an expression may start with a token.
fn is_start(token: &Token) -> bool {
    match token {
        Token::Sign(sign) => ["[", "{", "(", ".", "-", "!"].contains(sign),
        Token::Ident(word) => word != "in",
        Token::Quoted(_) | Token::End => false,
        _ => true,
    }
}

fn is_sign(token: &Token, signs: &[&str]) -> bool {
    matches!(token, Token::Sign(sign) if signs.contains(sign))
}

impl Parser<'_> {
    fn shown(&self, ahead: usize) -> String {
        match self.tokens.get(self.next + ahead) {
            Some(lexed) if lexed.token != Token::End => self.chars[lexed.at..lexed.end].iter().collect(),
            _ => "<EOF>".to_owned(),
        }
    }

    fn second(&self) -> &Token {
        self.tokens.get(self.next + 1).map_or(&Token::End, |lexed| &lexed.token)
    }

    fn report(&mut self, message: String) {
        self.problems.push(Problem::new(self.at(), format!("Syntax error: {message}")));
    }

    pub fn mismatched(&self, expected: &str) -> Problem {
        let message = format!("Syntax error: mismatched input '{}' expecting {expected}", self.shown(0));
        Problem::new(self.at(), message)
    }

    /// Leaves out a token, because the next one is what is expected.
    fn leave_out(&mut self, expected: &str) {
        self.report(format!("extraneous input '{}' expecting {expected}", self.shown(0)));
        self.next += 1;
    }

    /// Goes to the start of an expression, or to one of the signs that may stand there instead.
    pub fn at_start(&mut self, instead: &[&str]) -> Result<(), Problem> {
        let fits = |token: &Token| is_start(token) || is_sign(token, instead);
        if fits(self.peek()) {
            return Ok(());
        }
        if !fits(self.second()) {
            return Err(self.mismatched(&starts(instead)));
        }
        self.leave_out(&starts(instead));
        Ok(())
    }

    /// Goes to a name of a field, or to what may stand there instead.
    pub fn at_field(&mut self) -> Result<(), Problem> {
        const EXPECTED: &str = "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}";
        let fits =
            |token: &Token| matches!(token, Token::Ident(_) | Token::Quoted(_)) || is_sign(token, &["}", ",", "?"]);
        if fits(self.peek()) {
            return Ok(());
        }
        if !fits(self.second()) {
            return Err(self.mismatched(EXPECTED));
        }
        self.leave_out(EXPECTED);
        Ok(())
    }

    /// The sign that closes what is open, or the colon between two expressions.
    pub fn expect(&mut self, sign: &'static str) -> Result<usize, Problem> {
        if let Some(at) = self.take(sign) {
            return Ok(at);
        }
        let expected = format!("'{sign}'");
        if is_sign(self.second(), &[sign]) {
            self.leave_out(&expected);
            return self.take(sign).ok_or_else(|| self.mismatched(&expected));
        }
        let follows = match sign {
            ":" => is_start(self.peek()),
            _ => self.may_follow(),
        };
        if follows {
            self.report(format!("missing {expected} at '{}'", self.shown(0)));
            return Ok(self.at());
        }
        Err(self.mismatched(&expected))
    }

    /// Whether the next token may stand behind an expression here.
    fn may_follow(&self) -> bool {
        // What is being closed is the innermost that is open.
        let outer = self.open.len().checked_sub(2).and_then(|at| self.open.get(at));
        match self.peek() {
            Token::End => outer.is_none(),
            Token::Ident(word) => word == "in",
            Token::Sign(sign @ (")" | "]" | "}")) => outer == Some(sign),
            Token::Sign(",") => outer.is_some(),
            Token::Sign(sign) => !matches!(*sign, "(" | "{" | "!" | ":"),
            _ => false,
        }
    }

    /// The sign that closes a list, map or message, behind which an element may stand before a comma.
    pub fn close(&mut self, sign: &'static str) -> Result<usize, Problem> {
        let expected = format!("{{'{sign}', ','}}");
        if let Some(at) = self.take(sign) {
            return Ok(at);
        }
        if is_sign(self.second(), &[sign, ","]) {
            self.leave_out(&expected);
            return self.take(sign).ok_or_else(|| self.mismatched(&expected));
        }
        Err(self.mismatched(&expected))
    }

    /// The end of the text.
    pub fn finish(&mut self) {
        if *self.peek() == Token::End {
            return;
        }
        match self.second() {
            Token::End => self.leave_out("<EOF>"),
            _ => self.problems.push(self.mismatched("<EOF>")),
        }
    }

    /// What is behind a dot, or a minus, and cannot be there.
    pub fn not_viable(&self, before: &str) -> Problem {
        let shown = if *self.peek() == Token::End { String::new() } else { self.shown(0) };
        Problem::new(self.at(), format!("Syntax error: no viable alternative at input '{before}{shown}'"))
    }
}
