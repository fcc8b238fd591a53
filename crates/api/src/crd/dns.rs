//! The names that definitions are made of, and what upstream says about bad ones.

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn is_word(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

pub(crate) fn is_label_1123(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().copied().is_some_and(is_word)
        && bytes.last().copied().is_some_and(is_word)
        && bytes.iter().all(|b| is_word(*b) || *b == b'-')
}

pub(crate) fn is_subdomain_1123(text: &str) -> bool {
    text.split('.').all(is_label_1123)
}

/// What is wrong with a DNS-1035 label, the reasons joined with commas.
pub(crate) fn label_1035(text: &str) -> Option<String> {
    let mut reasons = Vec::new();
    if text.len() > 63 {
        reasons.push("must be no more than 63 bytes");
    }
    if !(is_label_1123(text) && text.as_bytes().first().is_some_and(u8::is_ascii_lowercase)) {
        reasons.push(LABEL_1035);
    }
    (!reasons.is_empty()).then(|| reasons.join(","))
}

/// What is wrong with a DNS-1123 subdomain, reason by reason.
pub(crate) fn subdomain_1123(text: &str) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    if text.len() > 253 {
        reasons.push("must be no more than 253 bytes");
    }
    if !is_subdomain_1123(text) {
        reasons.push(SUBDOMAIN);
    }
    reasons
}
