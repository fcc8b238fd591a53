//! Addresses that are accepted for the sake of old objects, but not written as they should be.

use std::net::IpAddr;

use schema::names::{masked, parse_ip};

pub(super) fn ip(path: &str, value: &str, out: &mut Vec<String>) {
    let Some(lenient) = parse(value) else { return };
    match value.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
            if address.to_string() != value {
                out.push(format!(
                    "{path}: IPv6 address \"{value}\" should be in RFC 5952 canonical format (\"{address}\")"
                ));
            }
        }
        Ok(IpAddr::V4(_)) => {}
        _ => out.push(format!("{path}: non-standard IP address \"{value}\" is invalid: use \"{lenient}\"")),
    }
}

pub(super) fn cidr(path: &str, value: &str, out: &mut Vec<String>) {
    let Some((address, bits)) = value.split_once('/') else { return };
    let (Some(lenient), Ok(bits)) = (parse(address), bits.parse::<u8>()) else { return };
    let strict = address.parse::<IpAddr>();
    let mapped = matches!(strict, Ok(IpAddr::V6(a)) if a.to_ipv4_mapped().is_some());
    let width = if lenient.is_ipv4() { 32 } else { 128 };
    let bits = if mapped { bits.saturating_sub(96) } else { bits };
    if bits > width {
        return;
    }
    let network = masked(lenient, bits);
    let before = out.len();
    if network != lenient {
        out.push(format!(
            "{path}: CIDR value \"{value}\" is ambiguous in this context \
             (should be \"{network}/{bits}\" or \"{lenient}/{width}\"?)"
        ));
    }
    if strict.is_err() || mapped {
        out.push(format!("{path}: non-standard CIDR value \"{value}\" is invalid: use \"{network}/{bits}\""));
    }
    if out.len() == before && lenient.is_ipv6() && lenient.to_string() != address {
        out.push(format!(
            "{path}: IPv6 CIDR value \"{value}\" should be in RFC 5952 canonical format (\"{lenient}/{bits}\")"
        ));
    }
}

/// As old versions read addresses: leading zeros are decimal, and a mapped address is the IPv4 one.
fn parse(value: &str) -> Option<IpAddr> {
    let address = parse_ip(value)?;
    let IpAddr::V6(v6) = address else { return Some(address) };
    Some(v6.to_ipv4_mapped().map_or(address, IpAddr::V4))
}
