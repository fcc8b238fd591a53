//! HTTP proxies: the settings of the environment, the hosts they apply to, and the CONNECT request.

use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Uri;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::error::Error;

/// Limit of the proxy's response to CONNECT.
const MAX_RESPONSE_BYTES: usize = 8 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    #[error("HTTPS_PROXY is {0:?}: it should look like http://proxy.example:3128")]
    Url(String),
    #[error(
        "HTTPS_PROXY is {0:?}: only proxies that are spoken to over plain HTTP can be used; \
         TLS to the center goes through them"
    )]
    Scheme(String),
    #[error("cannot reach the proxy {proxy}: {why}")]
    Unreachable { proxy: String, why: String },
    #[error(
        "the proxy {proxy} wants a name and a password, or other ones: put them into HTTPS_PROXY, \
         as in http://name:password@proxy.example:3128"
    )]
    Authentication { proxy: String },
    #[error("the proxy {proxy} refuses to connect to {center}: it says {said:?}")]
    Refused { proxy: String, center: String, said: String, code: u16 },
    #[error("the proxy {proxy} answers with something that is not HTTP")]
    NotHttp { proxy: String },
}

impl ProxyError {
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            // The proxy could not reach the center.
            Self::Refused { code, .. } => matches!(code, 500..=504),
            _ => false,
        }
    }
}

/// The proxy settings of the environment.
#[derive(Clone, Debug, Default)]
pub struct Proxy {
    url: Option<String>,
    except: Vec<String>,
}

impl Proxy {
    /// Uses no proxy.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads `HTTPS_PROXY` and `NO_PROXY`, in upper or lower case.
    pub fn from_env() -> Self {
        let read = |names: [&str; 2]| names.iter().find_map(|n| std::env::var(n).ok().filter(|v| !v.is_empty()));
        Self::new(
            read(["HTTPS_PROXY", "https_proxy"]).as_deref(),
            read(["NO_PROXY", "no_proxy"]).as_deref().unwrap_or_default(),
        )
    }

    pub fn new(url: Option<&str>, except: &str) -> Self {
        let except = except.split([',', ' ']).map(|e| e.trim().to_ascii_lowercase()).filter(|e| !e.is_empty());
        Self { url: url.map(str::to_owned), except: except.collect() }
    }

    /// The proxy for this host, if one is to be used. Like Go's clients, never uses one for this machine itself.
    pub(super) fn used_for(&self, host: &str, port: u16) -> Result<Option<Through>, ProxyError> {
        let Some(url) = &self.url else { return Ok(None) };
        let host = host.to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        let here = host == "localhost" || address.is_some_and(|a| a.is_loopback());
        if here || self.except.iter().any(|except| covers(except, &host, address, port)) {
            return Ok(None);
        }
        Through::parse(url).map(Some)
    }
}

/// Whether an entry of NO_PROXY covers the host. An entry is `*`, a domain with its subdomains, an address or a
/// network; all may have a port.
fn covers(except: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if except == "*" {
        return true;
    }
    if let Some((network, bits)) = except.split_once('/') {
        let (Ok(network), Ok(bits), Some(address)) = (network.parse(), bits.parse(), address) else { return false };
        return within(network, bits, address);
    }
    if let Ok(named) = except.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return address == Some(named);
    }
    let except = match except.rsplit_once(':') {
        Some((name, of)) if of.parse() == Ok(port) => name,
        Some(_) => return false,
        None => except,
    };
    if let Ok(named) = except.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return address == Some(named);
    }
    let domain = except.strip_prefix("*.").or_else(|| except.strip_prefix('.')).unwrap_or(except);
    let below = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    below || (host == except)
}

fn within(network: IpAddr, bits: u32, address: IpAddr) -> bool {
    let prefix = |value: u128, width: u32| {
        bits <= width && {
            let shift = width - bits;
            value.checked_shr(shift).unwrap_or(0) == 0
        }
    };
    match (network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => prefix(u128::from(a.to_bits() ^ b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => prefix(a.to_bits() ^ b.to_bits(), 128),
        _ => false,
    }
}

/// One proxy.
#[derive(Debug)]
pub(super) struct Through {
    host: String,
    port: u16,
    /// The value of the header, if the URL has a name and a password.
    authorization: Option<String>,
}

impl Through {
    fn parse(url: &str) -> Result<Self, ProxyError> {
        // As everywhere, a proxy may be written without http://. Passwords are not repeated.
        let shown = || url.rsplit_once('@').map_or(url, |(_, behind)| behind).to_owned();
        let full = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let uri: Uri = full.parse().map_err(|_| ProxyError::Url(shown()))?;
        if uri.scheme_str() != Some("http") {
            return Err(ProxyError::Scheme(shown()));
        }
        let authority = uri.authority().ok_or_else(|| ProxyError::Url(shown()))?;
        let authorization = authority.as_str().rsplit_once('@').map(|(who, _)| {
            let (name, password) = who.split_once(':').unwrap_or((who, ""));
            let plain = [&decoded(name)[..], b":", &decoded(password)[..]].concat();
            format!("Basic {}", STANDARD.encode(plain))
        });
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(ProxyError::Url(shown()));
        }
        Ok(Self { host, port: uri.port_u16().unwrap_or(80), authorization })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub fn unreachable(&self, error: &Error) -> Error {
        ProxyError::Unreachable { proxy: self.name(), why: error.to_string() }.into()
    }

    pub fn silent(&self) -> Error {
        ProxyError::Unreachable { proxy: self.name(), why: "it does not answer".to_owned() }.into()
    }
}

/// Asks for a way to the center.
pub(super) async fn ask(mut stream: TcpStream, through: &Through, center: &str) -> Result<TcpStream, Error> {
    let lost = |error: std::io::Error| ProxyError::Unreachable { proxy: through.name(), why: error.to_string() };
    let authorization =
        through.authorization.as_ref().map(|value| format!("Proxy-Authorization: {value}\r\n")).unwrap_or_default();
    let asked = format!("CONNECT {center} HTTP/1.1\r\nHost: {center}\r\n{authorization}\r\n");
    stream.write_all(asked.as_bytes()).await.map_err(lost)?;
    let mut answer = Vec::with_capacity(256);
    // Byte by byte would be wasteful, but nothing comes behind the answer before we speak.
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        if answer.len() > MAX_RESPONSE_BYTES {
            return Err(ProxyError::NotHttp { proxy: through.name() }.into());
        }
        if stream.read_buf(&mut answer).await.map_err(lost)? == 0 {
            return Err(lost(std::io::ErrorKind::UnexpectedEof.into()).into());
        }
    }
    let first = String::from_utf8_lossy(answer.split(|b| *b == b'\r').next().unwrap_or_default()).into_owned();
    let mut words = first.splitn(3, ' ');
    let code = match (words.next(), words.next().and_then(|code| code.parse::<u16>().ok())) {
        (Some(version), Some(code)) if version.starts_with("HTTP/1.") => code,
        _ => return Err(ProxyError::NotHttp { proxy: through.name() }.into()),
    };
    match code {
        200..=299 => Ok(stream),
        407 => Err(ProxyError::Authentication { proxy: through.name() }.into()),
        _ => {
            let said = first.split_once(' ').map_or("", |(_, said)| said).to_owned();
            Err(ProxyError::Refused { proxy: through.name(), center: center.to_owned(), said, code }.into())
        }
    }
}

fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => (out.push(byte), at += 3),
            None => (out.push(bytes[at]), at += 1),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_around() {
        for (except, host, around) in [
            ("", "center.example", false),
            ("*", "center.example", true),
            ("center.example", "center.example", true),
            ("example", "center.example", true),
            (".example", "center.example", true),
            ("*.example", "center.example", true),
            (".example", "example", false),
            ("ample", "center.example", false),
            ("center.example:443", "center.example", true),
            ("center.example:6443", "center.example", false),
            ("a, Center.Example", "CENTER.example", true),
            ("10.1.0.0/16", "10.1.2.3", true),
            ("10.1.0.0/16", "10.2.2.3", false),
            ("0.0.0.0/0", "10.2.2.3", true),
            ("10.1.0.0/33", "10.1.2.3", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("fd00::/8", "fd12::1", true),
            ("fd12::1", "fd12::1", true),
            ("", "127.0.0.1", true),
            ("", "localhost", true),
            ("", "::1", true),
        ] {
            let proxy = Proxy::new(Some("http://proxy.example:3128"), except);
            assert_eq!(proxy.used_for(host, 443).unwrap().is_none(), around, "{except:?} {host}");
        }
        assert!(Proxy::none().used_for("center.example", 443).unwrap().is_none());
    }

    #[test]
    fn urls_of_proxies() {
        let read = |url: &str| Through::parse(url).map_err(|error| error.to_string());
        let one = read("http://us%40er:p%3aw@proxy.example:3128").unwrap();
        assert_eq!((one.host(), one.port()), ("proxy.example", 3128));
        assert_eq!(one.authorization.as_deref(), Some(&*format!("Basic {}", STANDARD.encode("us@er:p:w"))));
        assert_eq!(read("proxy.example").unwrap().name(), "proxy.example:80");
        assert!(read("https://secret@proxy.example").unwrap_err().contains("plain HTTP"));
        assert!(!read("https://secret@proxy.example").unwrap_err().contains("secret"));
        assert!(read("http://").is_err());
    }
}
