//! Which IP families a service has: from what the client says, its addresses, and what the cluster offers.

use std::net::IpAddr;

use schema::field::{FieldError, FieldErrors};
use serde_json::{Value, json};

use crate::defaults::fields::{blank, fill, list, put, text, within};

const POLICY: &str = "spec.ipFamilyPolicy";

/// Fills in `ipFamilyPolicy` and `ipFamilies` before addresses are allocated. `configured` are the families that the
/// cluster has service addresses of, the default one first.
pub fn ip_families(service: &mut Value, old: Option<&Value>, configured: &[&str]) -> FieldErrors {
    let Some(spec) = within(service, "spec") else { return Vec::new() };
    if text(spec, &["type"]) == "ExternalName" {
        return Vec::new();
    }
    let anything = text(spec, &["clusterIP"]) == "None" && blank(spec.get("selector"));
    let before = old.and_then(|old| old.get("spec"));
    let inherited = before.map_or("", |before| text(before, &["ipFamilyPolicy"]));
    let default = match (inherited, anything) {
        ("", true) => "RequireDualStack",
        ("", false) => "SingleStack",
        (policy, _) => policy,
    };
    fill(spec, "ipFamilyPolicy", default);
    let policy = text(spec, &["ipFamilyPolicy"]).to_owned();
    let wrong = crate::validate::service_addresses(spec);
    if !wrong.is_empty() {
        return wrong;
    }
    let single = policy == "SingleStack";
    if single && let Some(before) = before {
        // As long as nothing else changed, going to one family gives up the second.
        for key in ["clusterIPs", "ipFamilies"] {
            if spec.get(key) == before.get(key)
                && let Some(values) = spec.get_mut(key).and_then(Value::as_array_mut)
            {
                values.truncate(1);
            }
        }
    }
    let mut errors = contradictions(spec, before, &policy);
    errors.extend(infer(spec, configured));
    if !errors.is_empty() {
        return errors;
    }
    let default_family = configured.first().copied().unwrap_or("IPv4");
    if anything {
        // Whoever maintains the endpoints decides, so both families are fine on any cluster.
        fill_families(spec, default_family);
        if !single {
            add_second(spec);
        }
        return Vec::new();
    }
    let dual = configured.len() > 1;
    if policy == "RequireDualStack" && !dual {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(FieldError::invalid(POLICY, &json!(policy), why));
    }
    for (i, family) in list(spec, &["ipFamilies"]).iter().enumerate() {
        if !configured.iter().any(|known| family == known) {
            let why = "not configured on this cluster";
            errors.push(FieldError::invalid(format!("spec.ipFamilies[{i}]"), family, why));
        }
    }
    if errors.is_empty() {
        fill_families(spec, default_family);
        if !single && dual {
            add_second(spec);
        }
    }
    errors
}

/// What the policy forbids.
fn contradictions(spec: &Value, before: Option<&Value>, policy: &str) -> FieldErrors {
    let single = policy == "SingleStack";
    let mut errors = Vec::new();
    for (key, one, many) in
        [("clusterIPs", "secondary cluster IP", "cluster IPs"), ("ipFamilies", "secondary IP family", "IP families")]
    {
        let count = list(spec, &[key]).len();
        let had = before.map_or(0, |before| list(before, &[key]).len());
        if !single && had == 2 && count == 1 {
            let why = format!("must be 'SingleStack' to release the {one}");
            errors.push(FieldError::invalid(POLICY, &json!(policy), &why));
        }
        if single && count == 2 {
            let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {many} are specified");
            errors.push(FieldError::invalid(POLICY, &json!(policy), &why));
        }
    }
    errors
}

/// Addresses that are asked for say their family.
fn infer(spec: &mut Value, configured: &[&str]) -> FieldErrors {
    let addresses = list(spec, &["clusterIPs"]).to_vec();
    let mut families = list(spec, &["ipFamilies"]).to_vec();
    let mut errors = Vec::new();
    for (i, address) in addresses.iter().enumerate().skip(families.len()) {
        let family = match address.as_str().map(str::parse::<IpAddr>) {
            Some(Ok(IpAddr::V4(_))) => "IPv4",
            Some(Ok(IpAddr::V6(_))) => "IPv6",
            _ => break,
        };
        if configured.contains(&family) {
            families.push(family.into());
        } else {
            let why = format!("{family} is not configured on this cluster");
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{i}]"), &json!(addresses), &why));
        }
    }
    if !families.is_empty() {
        put(spec, "ipFamilies", families);
    }
    errors
}

fn fill_families(spec: &mut Value, default: &str) {
    if blank(spec.get("ipFamilies")) {
        put(spec, "ipFamilies", vec![default]);
    }
}

fn add_second(spec: &mut Value) {
    if let Some(families) = spec.get_mut("ipFamilies").and_then(Value::as_array_mut)
        && let [first] = families.as_slice()
    {
        let second = if first == "IPv4" { "IPv6" } else { "IPv4" };
        families.push(second.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families() {
        let (v4, both) = (["IPv4"], ["IPv4", "IPv6"]);
        for (given, configured, policy, families) in [
            (json!({"type": "ClusterIP"}), &v4[..], "SingleStack", json!(["IPv4"])),
            (json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]}), &both[..], "SingleStack", json!(["IPv6"])),
            (
                json!({"clusterIP": "None", "clusterIPs": ["None"]}),
                &v4[..],
                "RequireDualStack",
                json!(["IPv4", "IPv6"]),
            ),
            (
                json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}}),
                &v4[..],
                "SingleStack",
                json!(["IPv4"]),
            ),
            (json!({"ipFamilyPolicy": "PreferDualStack"}), &v4[..], "PreferDualStack", json!(["IPv4"])),
            (json!({"ipFamilyPolicy": "PreferDualStack"}), &both[..], "PreferDualStack", json!(["IPv4", "IPv6"])),
        ] {
            let mut service = json!({"spec": given});
            assert_eq!(ip_families(&mut service, None, configured), [], "{given}");
            assert_eq!(service["spec"]["ipFamilyPolicy"], policy, "{given}");
            assert_eq!(service["spec"]["ipFamilies"], families, "{given}");
        }
        let mut external = json!({"spec": {"type": "ExternalName"}});
        assert_eq!(ip_families(&mut external, None, &v4), []);
        assert!(external["spec"].get("ipFamilies").is_none());
    }

    #[test]
    fn what_cannot_be() {
        for (given, want) in [
            (
                json!({"ipFamilyPolicy": "RequireDualStack"}),
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
            ),
            (
                json!({"ipFamilies": ["IPv6"]}),
                "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
            ),
            (
                json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "SingleStack"}),
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
            ),
        ] {
            let errors = ip_families(&mut json!({"spec": given}), None, &["IPv4"]);
            assert_eq!(FieldError::join(&errors), want);
        }
    }
}
