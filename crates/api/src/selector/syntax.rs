//! What label keys and values may look like, with upstream's explanations.

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
     character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Why `key` is no label key, all reasons joined; `None` if it is one.
pub(super) fn label_key(key: &str) -> Option<String> {
    let mut problems = Vec::new();
    let mut parts = key.split('/');
    let name = match (parts.next().unwrap_or_default(), parts.next(), parts.next()) {
        (name, None, _) => name,
        (prefix, Some(name), None) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > 253 {
                    problems.push("prefix part must be no more than 253 bytes".to_owned());
                }
                if !prefix.split('.').all(is_dns_label) {
                    problems.push(format!("prefix part {SUBDOMAIN}"));
                }
            }
            name
        }
        _ => {
            let rest = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return Some(format!("a valid label key {NAME} {rest}"));
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        problems.push(format!("name part {NAME}"));
    }
    if problems.is_empty() { None } else { Some(problems.join("; ")) }
}

/// Why `value` is no label value; `None` if it is one.
pub(super) fn label_value(value: &str) -> Option<String> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 bytes");
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(VALUE);
    }
    if problems.is_empty() { None } else { Some(problems.join("; ")) }
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|b| b.is_some_and(u8::is_ascii_alphanumeric))
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_dns_label(text: &str) -> bool {
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|b| b.is_some_and(plain)) && bytes.iter().all(|b| plain(b) || *b == b'-')
}
