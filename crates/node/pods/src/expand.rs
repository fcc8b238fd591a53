//! `$(NAME)` in commands, arguments and values, as Kubernetes expands it.

/// What is not known stays as it is; `$$` is a dollar.
pub fn expand<'a>(text: &str, value: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let name = after.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match name {
            Some((name, after)) => {
                match value(name) {
                    Some(value) => out.push_str(value),
                    None => {
                        out.push_str("$(");
                        out.push_str(name);
                        out.push(')');
                    }
                }
                rest = after;
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_kubernetes_does() {
        let value = |name: &str| match name {
            "A" => Some("1"),
            "EMPTY" => Some(""),
            "NESTED" => Some("$(A)"),
            _ => None,
        };
        for (text, expected) in [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x-$(A)-$(A)", "x-1-1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(UNKNOWN)", "$(UNKNOWN)"),
            ("$(EMPTY)", ""),
            ("$(NESTED)", "$(A)"),
            ("$(A", "$(A"),
            ("$A $ $", "$A $ $"),
            ("$", "$"),
            ("ü$(A)ß", "ü1ß"),
        ] {
            assert_eq!(expand(text, value), expected, "{text}");
        }
    }
}
