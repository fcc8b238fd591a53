//! Where webhooks of tenants may lead. The server is inside a network that tenants are outside of, so a webhook of a
//! workspace other than `root` does not lead to the machine that the server runs on, nor to its neighbours on the
//! link, where clouds have their metadata.

use std::{
    net::{IpAddr, Ipv6Addr, UdpSocket},
    str::FromStr,
};

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    base: IpAddr,
    bits: u32,
}

impl FromStr for Network {
    type Err = String;

    /// `10.1.0.0/16`, `fd00::/8`, or one address.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no network: write an address, or a range as in 10.1.0.0/16");
        let (base, bits) = text.split_once('/').map_or((text, None), |(base, bits)| (base, Some(bits)));
        let base: IpAddr = base.parse().map_err(|_| wrong())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most { Err(wrong()) } else { Ok(Self { base, bits }) }
    }
}

impl Network {
    fn has(&self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, width: u32| self.bits == 0 || (one ^ other) >> (width - self.bits) == 0;
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => same(base.to_bits().into(), address.to_bits().into(), 32),
            (IpAddr::V6(base), IpAddr::V6(address)) => same(base.to_bits(), address.to_bits(), 128),
            _ => false,
        }
    }
}

/// What webhooks of tenants may reach.
#[derive(Debug, Default)]
pub struct Reach {
    /// Also these, whatever they are.
    pub allowed: Vec<Network>,
}

impl Reach {
    /// Whether a connection to this address may be opened. It has to be the very address that is dialled.
    pub fn allows(&self, address: IpAddr) -> bool {
        let address = embedded(address);
        self.allowed.iter().any(|network| network.has(address)) || (!is_near(address) && !is_own(address))
    }
}

/// The IPv4 address that an IPv6 address stands for, if it does.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(six) = address.to_canonical() else { return address.to_canonical() };
    match six.segments() {
        // Translated by a gateway of the network (RFC 6052), or written in the way that was used before mapped
        // addresses.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0, 0, high @ 1..=u16::MAX, low] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            IpAddr::from([a, b, c, d])
        }
        _ => IpAddr::V6(six),
    }
}

/// This machine, its link, or nobody in particular.
fn is_near(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => {
            four.is_loopback()
                || four.is_link_local()
                || four.is_unspecified()
                || four.is_multicast()
                || four.is_broadcast()
                || four.octets()[0] == 0
        }
        IpAddr::V6(six) => {
            six.is_loopback() || six.is_unspecified() || six.is_multicast() || six.is_unicast_link_local()
        }
    }
}

/// Whether it is an address of this machine. The system says so by choosing it for the near end as well; nothing is
/// sent for that.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { [0, 0, 0, 0].into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let near = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    near.is_ok_and(|near| near.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(allowed: &[&str]) -> Reach {
        Reach { allowed: allowed.iter().map(|text| text.parse().unwrap()).collect() }
    }

    #[test]
    fn what_is_near_is_not_reached() {
        for address in [
            "127.0.0.1",
            "127.8.9.10",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
        ] {
            assert!(!reach(&[]).allows(address.parse().unwrap()), "{address}");
        }
        for address in ["10.1.2.3", "192.0.2.1", "2001:db8::1", "64:ff9b::c000:201"] {
            assert!(reach(&[]).allows(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn what_is_allowed_is_reached() {
        let some = reach(&["127.0.0.0/8", "fe80::/10", "169.254.7.7"]);
        for (address, allowed) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("::1", false),
            ("fe80::1", true),
            ("169.254.7.7", true),
            ("169.254.7.8", false),
        ] {
            assert_eq!(some.allows(address.parse().unwrap()), allowed, "{address}");
        }
        assert!(reach(&["0.0.0.0/0"]).allows([127, 0, 0, 1].into()));
        for wrong in ["", "x", "10.0.0.0/33", "10.0.0.0/-1", "fd00::/129", "10.0.0/8"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn own_addresses_are_known() {
        assert!(is_own([127, 0, 0, 1].into()));
        assert!(!is_own([192, 0, 2, 1].into()), "nobody has it");
    }
}
