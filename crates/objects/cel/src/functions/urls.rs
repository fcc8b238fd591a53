//! URLs: `url('https://host:80/path?a=b')`, read as Go's `net/url` reads them.

use schema::go::quote;

use super::super::value::{Key, Map, Value};
use super::super::{Evaluated, no_overload};
use super::strings::texts;

/// The parts of a URL.
#[derive(Clone, Debug, PartialEq)]
pub struct Url {
    scheme: String,
    /// What follows the scheme if that is no path: `mailto:a@b.c`.
    opaque: String,
    user: Option<String>,
    host: String,
    /// As it was written, if that is a way to write it.
    path: String,
    query: Option<String>,
    fragment: String,
}

/// Where a part of a URL is: characters have other meanings in each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    Zone,
    User,
    Path,
    Query,
    Fragment,
}

fn failed(url: &str, why: &str) -> String {
    format!("parse {}: {why}", quote(url))
}

impl Url {
    /// A URL as a client sends it: absolute, and without a fragment.
    pub fn parse_request(text: &str) -> Result<Self, String> {
        parse(text, true).map_err(|why| failed(text, &why))
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_request(text)?;
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = parse(before, false).map_err(|why| failed(before, &why))?;
        unescape(fragment, Part::Fragment).map_err(|why| failed(text, &why))?;
        fragment.clone_into(&mut url.fragment);
        Ok(url)
    }

    fn hostname(&self) -> &str {
        let (host, _) = self.split_host();
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    fn split_host(&self) -> (&str, &str) {
        match self.host.rfind(':') {
            Some(at) if is_port(&self.host[at..]) => (&self.host[..at], &self.host[at + 1..]),
            _ => (&self.host, ""),
        }
    }

    /// The values of each name; what cannot be read is left out.
    fn query(&self) -> Value {
        let mut values: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.as_deref().unwrap_or("").split('&') {
            if pair.is_empty() || pair.contains(';') {
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Ok(name), Ok(value)) = (unescape(name, Part::Query), unescape(value, Part::Query)) else { continue };
            values.push((text(name), vec![text(value)]));
        }
        values.sort_by(|a, b| a.0.cmp(&b.0));
        values.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1.append(&mut later.1);
            }
            same
        });
        let entry = |(name, values): (String, Vec<String>)| (Key::from(name), texts(values.iter().map(String::as_str)));
        Value::Map(Map::new(values.into_iter().map(entry).collect()))
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned())
}

fn parse(raw: &str, request: bool) -> Result<Url, String> {
    if raw.bytes().any(|b| b < b' ' || b == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if raw.is_empty() && request {
        return Err("empty url".to_owned());
    }
    let mut url = Url {
        scheme: String::new(),
        opaque: String::new(),
        user: None,
        host: String::new(),
        path: String::new(),
        query: None,
        fragment: String::new(),
    };
    if raw == "*" {
        "*".clone_into(&mut url.path);
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(raw)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (mut rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    url.query = query.map(str::to_owned);
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    if (!url.scheme.is_empty() || (!request && !rest.starts_with("///")))
        && let Some(behind) = rest.strip_prefix("//")
    {
        let (authority, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
        rest = path;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        url.host = parse_host(host)?;
        if let Some(user) = user {
            let valid = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
            if !user.bytes().all(valid) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            unescape(user, Part::User)?;
            url.user = Some(user.to_owned());
        }
    }
    let path = unescape(rest, Part::Path)?;
    let valid = rest.bytes().all(|b| b"!$&'()*+,;=:@[]%".contains(&b) || !must_escape(b, Part::Path));
    url.path = if valid { rest.to_owned() } else { escape_path(&path) };
    Ok(url)
}

fn split_scheme(raw: &str) -> Result<(&str, &str), String> {
    for (at, byte) in raw.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&raw[..at], &raw[at + 1..])),
            _ => break,
        }
    }
    Ok(("", raw))
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

fn parse_host(host: &str) -> Result<String, String> {
    let bad_port = |port: &str| Err(format!("invalid port {} after host", quote(port)));
    if host.starts_with('[') {
        let Some(end) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
        if !is_port(&host[end + 1..]) {
            return bad_port(&host[end + 1..]);
        }
        if let Some(zone) = host[..end].find("%25") {
            let mut all = unescape(&host[..zone], Part::Host)?;
            all.extend(unescape(&host[zone..end], Part::Zone)?);
            all.extend(unescape(&host[end..], Part::Host)?);
            return Ok(text(all));
        }
    } else if let Some(at) = host.rfind(':')
        && !is_port(&host[at..])
    {
        return bad_port(&host[at..]);
    }
    unescape(host, Part::Host).map(text)
}

fn must_escape(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    match part {
        Part::Host | Part::Zone => !b"!$&'()*+,;=:[]<>\"".contains(&byte),
        Part::Path => !b"$&+,/:;=@".contains(&byte),
        Part::Fragment => !b"$&+,/:;=?@!()*".contains(&byte),
        Part::User => !b"$&+,;=".contains(&byte),
        Part::Query => true,
    }
}

fn escape_path(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path {
        match must_escape(*byte, Part::Path) {
            true => out.push_str(&format!("%{byte:02X}")),
            false => out.push(char::from(*byte)),
        }
    }
    out
}

fn unescape(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).and_then(|b| char::from(*b).to_digit(16)).map(|digit| digit as u8);
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        if byte == b'%' {
            let shown = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]);
            let wrong = || format!("invalid URL escape {}", quote(&shown));
            let (Some(high), Some(low)) = (hex(at + 1), hex(at + 2)) else { return Err(wrong()) };
            let value = high << 4 | low;
            // In hosts only bytes beyond ASCII are escaped, and the sign of a zone.
            let allowed = match part {
                _ if value == b'%' => true,
                Part::Host => high >= 8,
                Part::Zone => value == b' ' || !must_escape(value, Part::Host),
                _ => true,
            };
            if !allowed {
                return Err(wrong());
            }
            out.push(value);
            at += 3;
            continue;
        }
        if matches!(part, Part::Host | Part::Zone) && byte.is_ascii() && must_escape(byte, part) {
            return Err(format!("invalid character {} in host name", quote(&char::from(byte).to_string())));
        }
        out.push(if byte == b'+' && part == Part::Query { b' ' } else { byte });
        at += 1;
    }
    Ok(out)
}

pub fn method(name: &str, of: &Url, args: &[Value]) -> Evaluated {
    if !args.is_empty() {
        return no_overload();
    }
    Ok(match name {
        "getScheme" => of.scheme.as_str().into(),
        "getHost" => of.host.as_str().into(),
        "getHostname" => of.hostname().into(),
        "getPort" => of.split_host().1.into(),
        "getEscapedPath" => of.path.as_str().into(),
        "getQuery" => of.query(),
        _ => return no_overload(),
    })
}
