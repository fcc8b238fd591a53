//! Names and labels: what may be called how, and names made up by the server.
//!
//! Every check answers the list of complaints, worded as upstream words them; a good name costs no allocation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub type Complaints = Vec<String>;

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FMT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_RULE: &str =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The suffix alphabet of generated names: no vowels and no characters that are easily confused.
const GENERATED: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const GENERATED_LENGTH: usize = 5;
const GENERATED_BASE: usize = 63 - GENERATED_LENGTH;

/// A name for `generateName`: the base, cut so that the result is a valid label, and five random characters.
///
/// `random(n)` answers a number below `n`.
pub fn generate(base: &str, mut random: impl FnMut(usize) -> usize) -> String {
    let mut end = base.len().min(GENERATED_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = String::with_capacity(end + GENERATED_LENGTH);
    name.push_str(&base[..end]);
    for _ in 0..GENERATED_LENGTH {
        name.push(char::from(GENERATED[random(GENERATED.len()) % GENERATED.len()]));
    }
    name
}

/// How objects of a kind may be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    Subdomain,
    Label,
    Label1035,
    /// Anything that fits into one segment of a path (RBAC, custom kinds of old).
    PathSegment,
    /// The address that the object stands for.
    Ip,
}

impl NameRule {
    /// `prefix` says that the name is a `generateName`, to which a suffix is yet to come.
    pub fn check(self, name: &str, prefix: bool) -> Complaints {
        if self == Self::PathSegment {
            return if prefix { path_segment_prefix(name) } else { path_segment(name) };
        }
        let masked;
        let name = if prefix && name.len() > 1 && name.ends_with('-') {
            // A trailing dash is fine as something follows it.
            let kept = name.char_indices().rev().nth(1).map_or(0, |(at, _)| at);
            masked = format!("{}a", &name[..kept]);
            &masked
        } else {
            name
        };
        match self {
            Self::Subdomain => dns1123_subdomain(name),
            Self::Label => dns1123_label(name),
            Self::Ip => canonical_ip(name),
            Self::Label1035 | Self::PathSegment => dns1035_label(name),
        }
    }
}

fn pattern_error(rule: &str, pattern: &str, examples: &[&str]) -> String {
    let mut text = format!("{rule} (");
    for (i, example) in examples.iter().enumerate() {
        text.push_str(if i == 0 { "e.g. '" } else { " or '" });
        text.push_str(example);
        text.push_str("', ");
    }
    text.push_str("regex used for validation is '");
    text.push_str(pattern);
    text.push_str("')");
    text
}

fn max_characters(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn max_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

pub fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label(value: &str) -> bool {
    match value.as_bytes() {
        [] => false,
        bytes @ [first, ..] => {
            lower_alnum(*first)
                && bytes.last().is_some_and(|b| lower_alnum(*b))
                && bytes.iter().all(|b| lower_alnum(*b) || *b == b'-')
        }
    }
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_key(value: &str) -> bool {
    match value.as_bytes() {
        [] => false,
        bytes @ [first, ..] => {
            first.is_ascii_alphanumeric()
                && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
                && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        }
    }
}

/// RFC 1123 label, at most 63 characters.
pub fn dns1123_label(value: &str) -> Complaints {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(max_characters(63));
    }
    if !is_label(value) {
        errors.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            pattern_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                LABEL_FMT,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// RFC 1123 subdomain, at most 253 characters.
pub fn dns1123_subdomain(value: &str) -> Complaints {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(max_characters(253));
    }
    if !is_subdomain(value) {
        errors.push(pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            SUBDOMAIN_FMT,
            &["example.com"],
        ));
    }
    errors
}

/// A subdomain whose labels may hold underscores, as search domains of resolvers do.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Complaints {
    let label = |text: &str| {
        let rest = text.strip_prefix('_').unwrap_or(text).as_bytes();
        rest.first().is_some_and(|b| lower_alnum(*b))
            && rest.last().is_some_and(|b| lower_alnum(*b))
            && rest.iter().all(|b| lower_alnum(*b) || matches!(b, b'-' | b'_'))
    };
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(max_characters(253));
    }
    if !value.split('.').all(label) {
        errors.push(pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    errors
}

/// `*.` and a subdomain.
pub fn wildcard_subdomain(value: &str) -> Complaints {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(max_characters(253));
    }
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        errors.push(pattern_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
             of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["*.example.com"],
        ));
    }
    errors
}

/// RFC 1035 label: as RFC 1123's, but it starts with a letter.
pub fn dns1035_label(value: &str) -> Complaints {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(max_characters(63));
    }
    if !is_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(pattern_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A label key, an annotation key, a finalizer, a resource name: `name` or `prefix/name`.
pub fn qualified_name(value: &str) -> Complaints {
    let mut errors = Vec::new();
    let mut parts = value.split('/');
    let name = match (parts.next().unwrap_or(""), parts.next(), parts.next()) {
        (name, None, _) => name,
        (prefix, Some(name), None) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                // Upstream's check of the prefix counts bytes where the plain subdomain check counts characters.
                if prefix.len() > 253 {
                    errors.push(format!("prefix part {}", max_bytes(253)));
                }
                if !is_subdomain(prefix) {
                    errors.extend(dns1123_subdomain(prefix).last().map(|e| format!("prefix part {e}")));
                }
            }
            name
        }
        _ => {
            let text = pattern_error(KEY_RULE, KEY_FMT, &["MyName", "my.name", "123-abc"]);
            errors.push(format!(
                "a valid label key {text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return errors;
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", max_bytes(63)));
    }
    if !is_key(name) {
        errors.push(format!("name part {}", pattern_error(KEY_RULE, KEY_FMT, &["MyName", "my.name", "123-abc"])));
    }
    errors
}

pub fn label_value(value: &str) -> Complaints {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push(max_bytes(63));
    }
    if !value.is_empty() && !is_key(value) {
        errors.push(pattern_error(
            &format!("a valid label must be an empty string or {}", KEY_RULE.strip_prefix("must ").unwrap_or(KEY_RULE)),
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

pub fn c_identifier(value: &str) -> Complaints {
    let bytes = value.as_bytes();
    let good = bytes.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    if good {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
         characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// The name of an environment variable, by the relaxed rule: printable ASCII without `=`.
pub fn env_var_name(value: &str) -> Complaints {
    let mut errors = Vec::new();
    if value.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if value.bytes().any(|b| !(b' '..=b'~').contains(&b) || b == b'=') {
        errors.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    errors
}

pub fn http_header_name(value: &str) -> Complaints {
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// A key of a ConfigMap or Secret, which may become a file name.
pub fn config_key(value: &str) -> Complaints {
    let mut errors = Vec::new();
    if value.len() > 253 {
        errors.push(max_characters(253));
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        errors.push(pattern_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(match value {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    });
    errors
}

pub fn port_name(value: &str) -> Complaints {
    let mut errors = Vec::new();
    if value.len() > 15 {
        errors.push(max_characters(15));
    }
    if value.is_empty() || !value.bytes().all(|b| lower_alnum(b) || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

pub fn port_number(port: i64) -> Complaints {
    in_range(port, 1, 65535)
}

pub fn in_range(value: i64, low: i64, high: i64) -> Complaints {
    if (low..=high).contains(&value) { Vec::new() } else { vec![between(low, high)] }
}

/// `10%`.
pub fn percent(value: &str) -> Complaints {
    if value.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
        return Vec::new();
    }
    vec![pattern_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

pub fn path_segment(value: &str) -> Complaints {
    match value {
        "." | ".." => vec![format!("may not be '{value}'")],
        _ => path_segment_prefix(value),
    }
}

pub fn path_segment_prefix(value: &str) -> Complaints {
    let found = ["/", "%"].into_iter().filter(|s| value.contains(s));
    found.map(|s| format!("may not contain '{s}'")).collect()
}

/// An IP address as older fields take it: leading zeros are read as decimal.
pub fn parse_ip(value: &str) -> Option<IpAddr> {
    if value.contains(':') {
        // A trailing dotted quad may hold leading zeros too.
        if let Ok(v6) = value.parse::<Ipv6Addr>() {
            return Some(IpAddr::V6(v6));
        }
        let (head, quad) = value.rsplit_once(':')?;
        let v4 = parse_ipv4(quad)?;
        return format!("{head}:{v4}").parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    parse_ipv4(value).map(IpAddr::V4)
}

fn parse_ipv4(value: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = value.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 16 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

/// A CIDR as older fields take it: the network's address and its prefix length.
pub fn parse_cidr(value: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = value.split_once('/')?;
    let address = parse_ip(address)?;
    if bits.is_empty() || bits.len() > 4 || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bits: u8 = bits.parse().ok()?;
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

/// An IP address by today's rule: no leading zeros, no IPv4 in IPv6.
pub fn ip(value: &str) -> Complaints {
    let Some(address) = parse_ip(value) else {
        return vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()];
    };
    let mut errors = Vec::new();
    if value.parse::<IpAddr>().is_err() {
        errors.push("must not have leading 0s".to_owned());
    }
    if is_mapped(address) {
        errors.push("must not be an IPv4-mapped IPv6 address".to_owned());
    }
    errors
}

/// As [`ip`], and in the one canonical form.
pub fn canonical_ip(value: &str) -> Complaints {
    let mut errors = ip(value);
    if errors.is_empty()
        && let Some(address) = parse_ip(value)
        && address.to_string() != value
    {
        errors.push(format!("must be in canonical form (\"{address}\")"));
    }
    errors
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// A CIDR by today's rule: no leading zeros, no IPv4 in IPv6, no bits beyond the prefix.
pub fn cidr(value: &str) -> Complaints {
    let Some((address, bits)) = parse_cidr(value) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()];
    };
    let (text, length) = value.split_once('/').unwrap_or((value, ""));
    let message = if text.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0')) {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if masked(address, bits) != address {
        "must not have bits set beyond the prefix length"
    } else {
        return Vec::new();
    };
    vec![message.to_owned()]
}

/// As [`cidr`], and in the one canonical form.
pub fn canonical_cidr(value: &str) -> Complaints {
    let mut errors = cidr(value);
    if errors.is_empty()
        && let Some((address, bits)) = parse_cidr(value)
    {
        let canonical = format!("{}/{bits}", masked(address, bits));
        if canonical != value {
            errors.push(format!("must be in canonical form (\"{canonical}\")"));
        }
    }
    errors
}

/// The network's own address.
pub fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(bits.into())).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(bits.into())).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

#[cfg(test)]
mod tests;
