//! The addresses that Services have here.

use std::net::{IpAddr, Ipv4Addr};

use schema::field::FieldError;
use serde_json::Value;

const LOOPBACK: &str = "may not be in the loopback range (127.0.0.0/8, ::1/128)";

/// As in 10.96.0.0/12. A range in 127.0.0.0/8 makes this a server of one machine without a network: its Pods are in the same
/// 127.X.0.0/16, and are reached there. Everywhere else upstream's rules hold, by which nobody is led to the machine itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    base: Ipv4Addr,
    bits: u8,
}

impl Default for Range {
    /// The default of upstream's kubeadm.
    fn default() -> Self {
        Self::new(Ipv4Addr::new(10, 96, 0, 0), 12)
    }
}

fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0)
}

impl Range {
    /// `bits` is the length of the prefix, at most 24: a smaller range would have no room for what is left to those who choose for themselves.
    pub fn new(base: Ipv4Addr, bits: u8) -> Self {
        let bits = bits.clamp(1, 24);
        Self { base: Ipv4Addr::from(u32::from(base) & mask(bits)), bits }
    }

    pub fn contains(&self, ip: Ipv4Addr) -> bool {
        u32::from(ip) & mask(self.bits) == u32::from(self.base)
    }

    pub fn size(&self) -> u32 {
        !mask(self.bits)
    }

    pub fn nth(&self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base).saturating_add(n))
    }

    /// The address of this server as a Service.
    pub fn first(&self) -> Ipv4Addr {
        self.nth(1)
    }

    /// Whether Pods and Services lie within this machine, at this address among others.
    pub fn is_within_machine(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip.to_canonical() else { return false };
        self.base.is_loopback() && ip.octets()[..2] == self.base.octets()[..2]
    }

    /// Whether an error is about an address that is all right here.
    pub fn forgives(&self, collection: &str, error: &FieldError) -> bool {
        if !self.base.is_loopback() || !matches!(collection, "core/endpoints" | "discovery.k8s.io/endpointslices") {
            return false;
        }
        let ip = error.message.strip_suffix(LOOPBACK).and_then(|rest| rest.split('"').nth(1)?.parse().ok());
        ip.is_some_and(|ip: IpAddr| self.is_within_machine(ip) || ip == IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// A Service that another server made has an address of that server's. Here it has one of its own.
    pub fn take_in(&self, service: &mut Value, old: Option<&Value>) {
        let asked = service["spec"]["clusterIP"].as_str().and_then(|ip| ip.parse().ok());
        if asked.is_none_or(|ip| self.contains(ip)) {
            return;
        }
        let Some(spec) = service["spec"].as_object_mut() else { return };
        for field in ["clusterIP", "clusterIPs"] {
            match old.and_then(|old| old["spec"].get(field)) {
                Some(had) => spec.insert(field.into(), had.clone()),
                None => spec.remove(field),
            };
        }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_in_it() {
        let usual = Range::default();
        assert_eq!((usual.to_string(), usual.first().to_string()), ("10.96.0.0/12".into(), "10.96.0.1".into()));
        assert!(usual.contains("10.111.255.255".parse().unwrap()) && !usual.contains("10.112.0.0".parse().unwrap()));
        let small = Range::new("127.9.128.7".parse().unwrap(), 17);
        assert_eq!((small.to_string(), small.size()), ("127.9.128.0/17".into(), 32767));
    }

    #[test]
    fn only_the_machines_own_part_is_reached() {
        let within = Range::new("127.9.128.0".parse().unwrap(), 17);
        for (address, expected) in [
            ("127.9.0.7", true),
            ("127.9.200.1", true),
            ("127.10.0.1", false),
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.9.0.1", true),
        ] {
            assert_eq!(within.is_within_machine(ip(address)), expected, "{address}");
            assert!(!Range::default().is_within_machine(ip(address)));
        }
        assert!(!Range::default().is_within_machine(ip("10.96.0.1")));
    }

    #[test]
    fn errors_about_loopback_are_forgiven_only_here() {
        let within = Range::new("127.9.128.0".parse().unwrap(), 17);
        let error = |ip: &str| FieldError::invalid("endpoints[0].addresses[0]", &json!(ip), LOOPBACK);
        let slices = "discovery.k8s.io/endpointslices";
        assert!(within.forgives(slices, &error("127.9.0.7")) && within.forgives("core/endpoints", &error("127.0.0.1")));
        assert!(
            !within.forgives(slices, &error("127.10.0.7")) && !within.forgives("core/services", &error("127.9.0.7"))
        );
        assert!(!Range::default().forgives(slices, &error("127.9.0.7")));
    }

    #[test]
    fn addresses_of_others_become_own_ones() {
        let within = Range::new("127.9.128.0".parse().unwrap(), 17);
        let service = |ip: &str| json!({"spec": {"clusterIP": ip, "clusterIPs": [ip]}});
        for (sent, old, expected) in [
            (service("10.96.0.7"), None, json!({"spec": {}})),
            (service("10.96.0.7"), Some(service("127.9.128.7")), service("127.9.128.7")),
            (service("None"), None, service("None")),
            (service("127.9.128.9"), None, service("127.9.128.9")),
        ] {
            let mut got = sent.clone();
            within.take_in(&mut got, old.as_ref());
            assert_eq!(got, expected, "{sent}");
        }
    }
}
