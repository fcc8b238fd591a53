//! String formats that are checked: those of upstream, and as strict as upstream is about each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;

use crate::names;

const KNOWN: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

fn normalized(format: &str) -> String {
    format.replace('-', "")
}

pub fn known(format: &str) -> bool {
    KNOWN.contains(&normalized(format).as_str())
}

/// Whether `text` is of the format; a format nobody knows is never wrong.
pub fn matches(format: &str, text: &str) -> bool {
    match normalized(format).as_str() {
        "datetime" => is_date_time(text),
        "date" => is_date(text),
        "duration" => parse_duration(text).is_some(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "byte" => STANDARD.decode(text).is_ok(),
        "email" => is_email(text),
        "uri" => is_request_uri(text),
        "hostname" => is_hostname(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8sshortname" => names::dns1123_label(text).is_empty(),
        "k8slongname" => names::dns1123_subdomain(text).is_empty(),
        "creditcard" => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            PATTERNS.credit_card.is_match(&digits)
        }
        "uuid" => PATTERNS.uuid.is_match(text),
        "uuid3" => PATTERNS.uuid3.is_match(text),
        "uuid4" => PATTERNS.uuid4.is_match(text),
        "uuid5" => PATTERNS.uuid5.is_match(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "ssn" => PATTERNS.ssn.is_match(text),
        "hexcolor" => PATTERNS.hex_color.is_match(text),
        "rgbcolor" => PATTERNS.rgb_color.is_match(text),
        _ => true,
    }
}

struct Patterns {
    uuid: Regex,
    uuid3: Regex,
    uuid4: Regex,
    uuid5: Regex,
    credit_card: Regex,
    ssn: Regex,
    hex_color: Regex,
    rgb_color: Regex,
    time: Regex,
}

#[allow(clippy::expect_used, reason = "the patterns are constants that a test compiles")]
static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let compile = |pattern: &str| Regex::new(pattern).expect("a constant pattern");
    Patterns {
        uuid: compile("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        uuid3: compile("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        uuid4: compile("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
        uuid5: compile("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
        credit_card: compile(
            "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|\
             3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$",
        ),
        ssn: compile("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"),
        hex_color: compile("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
        rgb_color: compile(
            r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$",
        ),
        time: compile(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$"),
    }
});

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, time)) = lower.split_once('t') else { return false };
    let Some(found) = PATTERNS.time.captures(time).filter(|_| is_date(date)) else { return false };
    let part = |index: usize| found.get(index).and_then(|m| m.as_str().parse::<u32>().ok()).unwrap_or(u32::MAX);
    part(1) <= 23 && part(2) <= 59 && part(3) <= 59
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let plain = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit());
    plain && bits.parse::<u32>().is_ok_and(|bits| bits <= if address.is_ipv4() { 32 } else { 128 })
}

/// Six, eight or twenty octets in the notations Go reads.
fn is_mac(text: &str) -> bool {
    let grouped = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len())
            && parts.iter().all(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    grouped(':', 2, &[6, 8, 20]) || grouped('-', 2, &[6, 8, 20]) || grouped('.', 4, &[3, 4, 10])
}

/// An address as mail programs write it, with or without a name before it.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>').and_then(|t| t.rsplit_once('<')) {
        Some((_, address)) => address,
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
    let dotted = |part: &str| part.split('.').all(|word| !word.is_empty() && word.chars().all(atom));
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let literal =
        domain.strip_prefix('[').and_then(|d| d.strip_suffix(']')).is_some_and(|d| d.parse::<IpAddr>().is_ok());
    (quoted || dotted(local)) && (literal || dotted(domain))
}

/// A URI as it stands in a request line: absolute, or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b <= b' ' || b == 0x7f) || !good_escapes(text) {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let good_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !good_scheme {
        return false;
    }
    let Some(rest) = rest.strip_prefix("//") else { return true };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host_port = authority.rsplit('@').next().unwrap_or("");
    let after_host = host_port.rsplit(']').next().unwrap_or("");
    after_host.rsplit_once(':').is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        && host_port.starts_with('[') == host_port.contains(']')
        && !host_port.contains(['<', '>', '"', '{', '}', '|', '\\', '^'])
}

fn good_escapes(text: &str) -> bool {
    let bytes = text.as_bytes();
    (0..bytes.len())
        .filter(|i| bytes[*i] == b'%')
        .all(|i| bytes.get(i + 1..i + 3).is_some_and(|pair| pair.iter().all(u8::is_ascii_hexdigit)))
}

fn is_hostname(text: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || (!c.is_ascii() && !c.is_whitespace());
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.starts_with(word)
            && label.ends_with(word)
            && label.chars().all(|c| word(c) || c == '-')
    };
    let labels: Vec<&str> = text.split('.').collect();
    let top = labels
        .last()
        .is_some_and(|last| labels.len() == 1 || (last.len() >= 2 && last.chars().all(char::is_alphabetic)));
    text.len() <= 255 && top && labels.iter().all(|l| label(l))
}

fn is_isbn10(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    let bytes = text.as_bytes();
    if bytes.len() != 10 {
        return false;
    }
    let digit = |index: usize| match bytes[index] {
        b @ b'0'..=b'9' => Some(u32::from(b - b'0')),
        b'X' if index == 9 => Some(10),
        _ => None,
    };
    let sum: Option<u32> = (0..10).map(|i| digit(i).map(|d| d * (i as u32 + 1))).sum();
    sum.is_some_and(|sum| sum.is_multiple_of(11))
}

fn is_isbn13(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(10)).collect();
    digits.is_some_and(|digits| {
        let sum: u32 = digits.iter().enumerate().map(|(i, d)| d * if i.is_multiple_of(2) { 1 } else { 3 }).sum();
        digits.len() == 13 && sum.is_multiple_of(10)
    })
}

/// Nanoseconds of a duration in Go's notation (`1h30m`), or in words (`3 days`), which upstream also takes.
pub fn parse_duration(text: &str) -> Option<i64> {
    parse_go_duration(text).or_else(|| parse_worded_duration(text))
}

pub fn parse_go_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: f64 = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let amount = &rest[..end];
        if amount.is_empty() || amount == "." || amount.matches('.').count() > 1 {
            return None;
        }
        let amount: f64 = amount.trim_end_matches('.').parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        rest = &rest[end..];
        total += amount * unit;
    }
    (total <= 9.223_372_036_854_775e18).then(|| if negative { -(total as i64) } else { total as i64 })
}

fn parse_worded_duration(text: &str) -> Option<i64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
    let amount: i64 = text[..split].parse().ok()?;
    let unit: i64 = match text[split..].trim() {
        "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => 1,
        "us" | "µs" | "micro" | "micros" | "microsecond" | "microseconds" => 1_000,
        "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000_000,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000_000_000,
        "d" | "day" | "days" => 86_400_000_000_000,
        "w" | "wk" | "week" | "weeks" => 604_800_000_000_000,
        _ => return None,
    };
    amount.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_good_from_bad() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "date-time",
                &["2020-01-02T03:04:05Z", "2020-01-02t03:04:05.123+01:00"],
                &["today", "2020-01-02", "2020-13-02T03:04:05Z", "2020-01-02T25:04:05Z"],
            ),
            ("date", &["2020-02-29"], &["2021-02-29", "20200229"]),
            ("email", &["a@b", "Jo <jo@x.io>"], &["nobody", "a@", "@b", "a b@c"]),
            ("ipv4", &["10.0.0.1"], &["10.0.0", "::1"]),
            ("ipv6", &["::1"], &["10.0.0.1", "::g"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"]),
            ("mac", &["00:00:5e:00:53:01", "0000.5e00.5301"], &["00:00:5e:00:53", "zz:00:5e:00:53:01"]),
            ("uuid", &["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"], &["123"]),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("byte", &["aGk=", ""], &["a", "aGk"]),
            ("uri", &["http://a/b?c#d", "/x", "urn:x"], &["a b", "", "x/y", "http://a:b/"]),
            ("hostname", &["a", "a.example.com", "1a-b"], &["-a", "a..b", "a_b", "a.b.c1"]),
            ("duration", &["1h30m", "-1.5s", "3 days", "0"], &["", "1", "h", "1 year"]),
            ("isbn10", &["0321751043"], &["0321751044"]),
            ("isbn13", &["978-0321751041"], &["978-0321751042"]),
            ("creditcard", &["4111-1111-1111-1111"], &["123"]),
            ("hexcolor", &["#fff", "FFFFFF"], &["#ff"]),
            ("rgbcolor", &["rgb(255,255,255)"], &["rgb(256,0,0)"]),
            ("ssn", &["111-22-3333"], &["1"]),
            ("k8s-short-name", &["a-b"], &["A", "a.b"]),
            ("k8s-long-name", &["a.b"], &["a..b"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f"]),
        ];
        for (format, good, bad) in cases {
            assert!(known(format), "{format}");
            good.iter().for_each(|text| assert!(matches(format, text), "{format}: {text}"));
            bad.iter().for_each(|text| assert!(!matches(format, text), "{format}: {text}"));
        }
        assert!(!known("int-or-string") && matches("nobody-knows", "x"));
    }

    #[test]
    fn durations_are_counted_in_nanoseconds() {
        for (text, nanos) in [("1h", 3_600_000_000_000), ("1m1.5s", 61_500_000_000), ("-2ms", -2_000_000)] {
            assert_eq!(parse_go_duration(text), Some(nanos), "{text}");
        }
    }
}
