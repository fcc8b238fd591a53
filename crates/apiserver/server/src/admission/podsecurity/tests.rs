use serde_json::{Value, json};

use super::*;

fn told(level: &str, spec: &Value) -> String {
    let labels = json!({"pod-security.kubernetes.io/enforce": level});
    let metadata = json!({"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"}});
    Standard::read(&labels, "enforce").judge(&Pod { metadata: &metadata, spec }).unwrap_or_default()
}

fn good() -> Value {
    json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "c", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]})
}

#[test]
fn a_plain_pod_is_baseline_but_not_restricted() {
    let plain = json!({"containers": [{"name": "c"}]});
    assert_eq!(told("privileged", &plain), "");
    assert_eq!(told("baseline", &plain), "");
    assert_eq!(
        told("restricted", &plain),
        "PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"c\" must set \
         securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
         securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
         securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
         securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
    );
    assert_eq!(told("restricted", &good()), "");
}

#[test]
fn each_way_out_is_named() {
    for (path, value, baseline, restricted) in [
        ("/hostNetwork", json!(true), "host namespaces (hostNetwork=true)", ""),
        (
            "/volumes/0",
            json!({"name": "h", "hostPath": {"path": "/"}}),
            "hostPath volumes (volume \"h\")",
            "restricted volume types (volume \"h\" uses restricted volume type \"hostPath\")",
        ),
        (
            "/volumes/0",
            json!({"name": "n", "nfs": {}}),
            "",
            "restricted volume types (volume \"n\" uses restricted volume type \"nfs\")",
        ),
        (
            "/containers/0/securityContext/privileged",
            json!(true),
            "privileged (container \"c\" must not set securityContext.privileged=true)",
            "",
        ),
        ("/containers/0/ports", json!([{"hostPort": 80}]), "hostPort (container \"c\" uses hostPort 80)", ""),
        (
            "/containers/0/securityContext/capabilities/add",
            json!(["SYS_ADMIN"]),
            "non-default capabilities (container \"c\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add)",
            "unrestricted capabilities (container \"c\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add)",
        ),
        (
            "/containers/0/securityContext/capabilities/add",
            json!(["CHOWN"]),
            "",
            "unrestricted capabilities (container \"c\" must not include \"CHOWN\" in securityContext.capabilities.add)",
        ),
        (
            "/containers/0/securityContext/procMount",
            json!("Unmasked"),
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
            "",
        ),
        (
            "/securityContext/seccompProfile",
            json!({"type": "Unconfined"}),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
            "",
        ),
        (
            "/securityContext/seLinuxOptions",
            json!({"type": "spc_t", "user": "u"}),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set)",
            "",
        ),
        (
            "/securityContext/sysctls",
            json!([{"name": "kernel.msgmax", "value": "1"}]),
            "forbidden sysctls (kernel.msgmax)",
            "",
        ),
        ("/securityContext/sysctls", json!([{"name": "net.ipv4.tcp_rmem", "value": "1"}]), "", ""),
        (
            "/securityContext/windowsOptions",
            json!({"hostProcess": true}),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
            "",
        ),
        (
            "/containers/0/livenessProbe",
            json!({"httpGet": {"host": "10.0.0.1"}}),
            "probe or lifecycle host (container \"c\" uses probe or lifecycle host)",
            "",
        ),
        ("/securityContext/runAsUser", json!(0), "", "runAsUser=0 (pod must not set runAsUser=0)"),
        (
            "/securityContext/runAsNonRoot",
            json!(false),
            "",
            "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)",
        ),
        (
            "/containers/0/securityContext/appArmorProfile",
            json!({"type": "Unconfined"}),
            "forbidden AppArmor profile (container \"c\" must not set AppArmor profile type to \"Unconfined\")",
            "",
        ),
    ] {
        let mut spec = good();
        let (parent, field) = path.rsplit_once('/').unwrap();
        match spec.pointer_mut(parent).unwrap() {
            Value::Array(list) => list[0] = value,
            other => other[field] = value,
        }
        let head = |level: &str, why: &str| {
            if why.is_empty() { String::new() } else { format!("PodSecurity \"{level}:latest\": {why}") }
        };
        assert_eq!(told("baseline", &spec), head("baseline", baseline), "{path}");
        let restricted = if restricted.is_empty() { baseline } else { restricted };
        assert_eq!(told("restricted", &spec), head("restricted", restricted), "{path}");
    }
}

#[test]
fn versions_and_unknown_levels() {
    let spec = json!({"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}, "containers": []});
    let pod = Pod { metadata: &Value::Null, spec: &spec };
    let labels = |version: &str| json!({"pod-security.kubernetes.io/warn": "baseline", "pod-security.kubernetes.io/warn-version": version});
    assert!(Standard::read(&labels("v1.31"), "warn").judge(&pod).is_some());
    assert!(Standard::read(&labels("v1.32"), "warn").judge(&pod).is_none());
    assert_eq!(Standard::read(&json!({"pod-security.kubernetes.io/enforce": "x"}), "enforce").level, Level::Restricted);
    assert!(is_version("latest") && is_version("v1.30") && !is_version("1.30") && !is_version("v2"));
}
