//! IP addresses and networks: `ip('::1')`, `cidr('10.0.0.0/8')`, read as Go's `net/netip` reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schema::go::quote;
use schema::names::masked;

use super::super::value::{Opaque, Value};
use super::super::{Evaluated, Failure, error, no_overload};

/// An address, or what is wrong with it.
fn parse(text: &str) -> Result<IpAddr, String> {
    let wrong = |(why, at): (&str, Option<&str>)| {
        let at = at.map(|at| format!(" (at {})", quote(at))).unwrap_or_default();
        format!("ParseAddr({}): {why}{at}", quote(text))
    };
    match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => parse_v4(text).map(IpAddr::V4).map_err(wrong),
        Some(b':') => parse_v6(text).map(IpAddr::V6).map_err(wrong),
        Some(_) => Err(wrong(("missing IPv6 address", None))),
        None => Err(wrong(("unable to parse IP", None))),
    }
}

type Wrong<'t> = (&'static str, Option<&'t str>);

fn parse_v4(text: &str) -> Result<Ipv4Addr, Wrong<'_>> {
    let mut octets = [0u8; 4];
    let (mut value, mut position, mut digits) = (0u32, 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", None));
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(("IPv4 field has value >255", None));
                }
            }
            b'.' => {
                if at == 0 || at == text.len() - 1 || digits == 0 {
                    return Err(("IPv4 field must have at least one digit", Some(&text[at..])));
                }
                if position == 3 {
                    return Err(("IPv4 address too long", None));
                }
                octets[position] = value as u8;
                position += 1;
                (value, digits) = (0, 0);
            }
            _ => return Err(("unexpected character", text.get(at..))),
        }
    }
    if position < 3 {
        return Err(("IPv4 address too short", None));
    }
    octets[3] = value as u8;
    Ok(Ipv4Addr::from(octets))
}

fn parse_v6(text: &str) -> Result<Ipv6Addr, Wrong<'_>> {
    let mut rest = match text.split_once('%') {
        Some((_, "")) => return Err(("zone must be a non-empty string", None)),
        Some((rest, _)) => rest,
        None => text,
    };
    let mut bytes: Vec<u8> = Vec::with_capacity(16);
    let mut ellipsis = None;
    if let Some(behind) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = behind;
        if rest.is_empty() {
            return Ok(Ipv6Addr::UNSPECIFIED);
        }
    }
    while bytes.len() < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(("each group must have 4 or less digits", Some(rest)));
        }
        if digits == 0 {
            return Err(("each colon-separated field must have at least one digit", Some(rest)));
        }
        if rest[digits..].starts_with('.') {
            if ellipsis.is_none() && bytes.len() != 12 {
                return Err(("embedded IPv4 address must replace the final 2 fields of the address", Some(rest)));
            }
            if bytes.len() > 12 {
                return Err(("too many hex fields to fit an embedded IPv4 at the end of the address", Some(rest)));
            }
            bytes.extend(parse_v4(rest)?.octets());
            rest = "";
            break;
        }
        let field = u16::from_str_radix(&rest[..digits], 16).unwrap_or(0);
        bytes.extend(field.to_be_bytes());
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(behind) = rest.strip_prefix(':') else { return Err(("unexpected character, want colon", Some(rest))) };
        if behind.is_empty() {
            return Err(("colon must be followed by more characters", Some(rest)));
        }
        rest = behind;
        if let Some(behind) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", Some(rest)));
            }
            ellipsis = Some(bytes.len());
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", Some(rest)));
    }
    match ellipsis {
        Some(_) if bytes.len() == 16 => return Err(("the :: must expand to at least one field of zeros", None)),
        Some(at) => {
            let zeros = vec![0; 16 - bytes.len()];
            bytes.splice(at..at, zeros);
        }
        None if bytes.len() < 16 => return Err(("address string too short", None)),
        None => {}
    }
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| ("address string too short", None))?;
    Ok(Ipv6Addr::from(bytes))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

pub fn parse_ip(text: &str) -> Result<IpAddr, Failure> {
    let address = match parse(text) {
        Ok(address) => address,
        Err(why) => {
            return error(format!("IP Address {} parse error during conversion from string: {why}", quote(text)));
        }
    };
    if text.contains('%') {
        return error(format!("IP address {} with zone value is not allowed", quote(text)));
    }
    if is_mapped(address) {
        return error(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
    }
    Ok(address)
}

fn read_cidr(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = |why: &str| {
        format!("network address parse error during conversion from string: netip.ParsePrefix({}): {why}", quote(text))
    };
    let Some((address, bits)) = text.rsplit_once('/') else { return Err(wrong("no '/'")) };
    let parsed = parse(address).map_err(|why| wrong(&why))?;
    if address.contains('%') {
        return Err(wrong("IPv6 zones cannot be present in a prefix"));
    }
    let plain = bits.bytes().all(|b| b.is_ascii_digit()) && !bits.is_empty() && (bits == "0" || !bits.starts_with('0'));
    if !plain {
        return Err(wrong(&format!("bad bits after slash: {}", quote(bits))));
    }
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    let bits = bits.parse::<u8>().ok().filter(|bits| *bits <= most);
    let bits = bits.ok_or_else(|| wrong("prefix length out of range"))?;
    if is_mapped(parsed) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
    }
    Ok((parsed, bits))
}

pub fn parse_cidr(text: &str) -> Result<(IpAddr, u8), Failure> {
    read_cidr(text).or_else(|why| error(format!("network address parse error during conversion from string: {why}")))
}

/// `ip.isCanonical`.
pub fn is_canonical(text: &str) -> Evaluated {
    parse_ip(text).map(|address| (address.to_string() == text).into())
}

pub fn ip_method(name: &str, of: IpAddr, args: &[Value]) -> Evaluated {
    if !args.is_empty() {
        return no_overload();
    }
    let link_local = match of {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    Ok(match name {
        "family" => Value::Int(if of.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => of.is_unspecified().into(),
        "isLoopback" => of.is_loopback().into(),
        "isLinkLocalMulticast" => match of {
            IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
            IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
        }
        .into(),
        "isLinkLocalUnicast" => link_local.into(),
        "isGlobalUnicast" => {
            let broadcast = matches!(of, IpAddr::V4(v4) if v4.is_broadcast());
            (!of.is_unspecified() && !of.is_loopback() && !of.is_multicast() && !link_local && !broadcast).into()
        }
        _ => return no_overload(),
    })
}

fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    network.is_ipv4() == address.is_ipv4() && masked(network, bits) == masked(address, bits)
}

pub fn cidr_method(name: &str, of: (IpAddr, u8), args: &[Value]) -> Evaluated {
    let (address, bits) = of;
    let inner = |inside: (IpAddr, u8)| Ok((bits <= inside.1 && contains(of, inside.0)).into());
    match (name, args) {
        ("ip", []) => Ok(Value::opaque(Opaque::Ip(address))),
        ("masked", []) => Ok(Value::opaque(Opaque::Cidr(masked(address, bits), bits))),
        ("prefixLength", []) => Ok(Value::Int(bits.into())),
        ("containsIP", [Value::String(text)]) => parse_ip(text).map(|inside| contains(of, inside).into()),
        ("containsCIDR", [Value::String(text)]) => inner(parse_cidr(text)?),
        (_, [Value::Opaque(other)]) => match (name, &**other) {
            ("containsIP", Opaque::Ip(inside)) => Ok(contains(of, *inside).into()),
            ("containsCIDR", Opaque::Cidr(inside, length)) => inner((*inside, *length)),
            _ => no_overload(),
        },
        _ => no_overload(),
    }
}
