//! Users with fixed tokens, from a file: `token,user,uid,"group1,group2"` on each line, as upstream reads it.

use std::{collections::HashMap, path::Path};

use aws_lc_rs::digest::{SHA256, digest};

use super::{
    Error,
    authenticate::{AUTHENTICATED, User},
    files,
};

/// Looked up by the token's hash, so that the time a look takes says nothing about a token.
#[derive(Default)]
pub struct FixedTokens(HashMap<[u8; 32], User>);

impl FixedTokens {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |why: String| Error::Configuration { path: path.to_owned(), why };
        let text = files::read(path)?.ok_or_else(|| wrong("there is no such file".to_owned()))?;
        Self::parse(&text).map_err(wrong)
    }

    /// Errors name the line and never what is in it.
    fn parse(text: &str) -> Result<Self, String> {
        let mut users = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let fields =
                fields(line).ok_or_else(|| format!("line {number} has a quote that does not end or is misplaced"))?;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(format!(
                    "line {number} must have at least 3 columns (token, user name, user uid), found {}",
                    fields.len()
                ));
            };
            if token.is_empty() {
                return Err(format!("line {number} has an empty token"));
            }
            if name.is_empty() {
                return Err(format!("line {number} names no user"));
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let mut user = User { name: name.clone(), uid: uid.clone(), ..User::default() };
            user.groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty()).map(str::to_owned).collect();
            user.join(AUTHENTICATED);
            if users.insert(hash(token), user).is_some() {
                return Err(format!("line {number} repeats a token"));
            }
        }
        Ok(Self(users))
    }

    pub fn user(&self, token: &str) -> Option<&User> {
        if self.0.is_empty() { None } else { self.0.get(&hash(token)) }
    }
}

fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

/// The columns of a line. A quoted column may hold commas, and quotes that are doubled.
fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => {
                let mut field = String::new();
                let mut at = quoted;
                loop {
                    let (part, after) = at.split_once('"')?;
                    field.push_str(part);
                    match after.strip_prefix('"') {
                        Some(more) => {
                            field.push('"');
                            at = more;
                        }
                        None => break (field, after.trim_start()),
                    }
                }
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                if rest[..end].contains('"') {
                    return None;
                }
                (rest[..end].trim().to_owned(), &rest[end..])
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after.is_empty() => return Some(fields),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_by_their_tokens() {
        let file = "abc,jane,u1,\"devs,ops\"\n\n\"d,\"\"e\", bob , u2\nf,eve,u3,one\n";
        let tokens = FixedTokens::parse(file).unwrap();
        let jane = tokens.user("abc").unwrap();
        assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", "u1"));
        assert_eq!(jane.groups, ["devs", "ops", AUTHENTICATED]);
        assert_eq!(tokens.user("d,\"e").unwrap().name, "bob");
        assert_eq!(tokens.user("f").unwrap().groups, ["one", AUTHENTICATED]);
        assert!(tokens.user("").is_none() && tokens.user("ab").is_none());
    }

    #[test]
    fn mistakes_are_named_by_line_without_the_token() {
        for (file, expected) in [
            ("secret,jane", "line 1 must have at least 3 columns (token, user name, user uid), found 2"),
            ("secret,jane,u\n\n,bob,u", "line 3 has an empty token"),
            ("secret,,u", "line 1 names no user"),
            ("secret,jane,u\nsecret,bob,u", "line 2 repeats a token"),
            ("secret,jane,u,\"a,b", "line 1 has a quote that does not end or is misplaced"),
            ("secret,jane,u,\"a\"b", "line 1 has a quote that does not end or is misplaced"),
            ("sec\"ret,jane,u", "line 1 has a quote that does not end or is misplaced"),
        ] {
            let error = FixedTokens::parse(file).err().unwrap();
            assert_eq!(error, expected);
            assert!(!error.contains("secret"));
        }
    }
}
