//! What a container's `securityContext` asks for, beside users and groups. Pure.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::runtime::Capabilities;

/// As a kubelet has it: only if the container says so itself.
pub fn forbids_new_privileges(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|own| own.allow_privilege_escalation) == Some(false)
}

/// The capabilities that it asks for and does without.
pub fn capabilities(container: &Container) -> Capabilities {
    let own = container.security_context.as_ref();
    let asked = own.and_then(|own| own.capabilities.clone()).unwrap_or_default();
    Capabilities {
        add: asked.add.unwrap_or_default(),
        drop: asked.drop.unwrap_or_default(),
        privileged: own.and_then(|own| own.privileged) == Some(true),
    }
}

/// The fields by which a container asks to be restricted, beside those that every runtime here holds to.
pub fn restrictions(pod: &Pod, container: &Container) -> Vec<String> {
    let own = container.security_context.as_ref();
    let of_pod = pod.spec.as_ref();
    let whole = of_pod.and_then(|spec| spec.security_context.as_ref());
    let seccomp = own.and_then(|own| own.seccomp_profile.as_ref()).or_else(|| whole?.seccomp_profile.as_ref());
    let app_armor = own.and_then(|own| own.app_armor_profile.as_ref()).or_else(|| whole?.app_armor_profile.as_ref());
    let linux = own.and_then(|own| own.se_linux_options.as_ref()).or_else(|| whole?.se_linux_options.as_ref());
    [
        (own.and_then(|own| own.read_only_root_filesystem) == Some(true), "readOnlyRootFilesystem"),
        (seccomp.is_some_and(|profile| profile.type_ != "Unconfined"), "seccompProfile"),
        (app_armor.is_some_and(|profile| profile.type_ != "Unconfined"), "appArmorProfile"),
        (linux.is_some(), "seLinuxOptions"),
        (of_pod.and_then(|spec| spec.host_users) == Some(false), "hostUsers: false"),
    ]
    .into_iter()
    .filter(|(is_asked, _)| *is_asked)
    .map(|(_, field)| field.to_owned())
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(pod: Value, own: Value) -> (bool, Vec<String>) {
        let pod: Pod = serde_json::from_value(json!({
            "spec": {"securityContext": pod["securityContext"], "hostUsers": pod["hostUsers"],
                "containers": [{"name": "a", "securityContext": own}]},
        }))
        .unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        (forbids_new_privileges(container), restrictions(&pod, container))
    }

    #[test]
    fn capabilities_are_read() {
        let of =
            |own: Value| capabilities(&serde_json::from_value(json!({"name": "a", "securityContext": own})).unwrap());
        assert_eq!(of(json!(null)), Capabilities::default());
        let asked = of(json!({"capabilities": {"add": ["SYS_TIME"], "drop": ["ALL"]}, "privileged": true}));
        assert_eq!(asked, Capabilities { add: vec!["SYS_TIME".into()], drop: vec!["ALL".into()], privileged: true });
    }

    #[test]
    fn what_is_asked_for() {
        let runtime_default = json!({"seccompProfile": {"type": "RuntimeDefault"}});
        for (pod, own, privileges, expected) in [
            (json!({}), json!(null), false, &[][..]),
            (json!({}), json!({"allowPrivilegeEscalation": true}), false, &[]),
            (json!({}), json!({"allowPrivilegeEscalation": false}), true, &[]),
            (
                json!({}),
                json!({"capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true}),
                false,
                &["readOnlyRootFilesystem"],
            ),
            (json!({}), json!({"capabilities": {"add": ["SYS_TIME"], "drop": []}}), false, &[]),
            (json!({"securityContext": runtime_default}), json!({}), false, &["seccompProfile"]),
            (
                json!({"securityContext": runtime_default}),
                json!({"seccompProfile": {"type": "Unconfined"}}),
                false,
                &[],
            ),
            (
                json!({"hostUsers": false, "securityContext": {"seLinuxOptions": {"level": "s0"}}}),
                json!({"appArmorProfile": {"type": "RuntimeDefault"}}),
                false,
                &["appArmorProfile", "seLinuxOptions", "hostUsers: false"],
            ),
        ] {
            let (is_forbidden, found) = asked(pod.clone(), own.clone());
            assert_eq!((is_forbidden, found), (privileges, expected.iter().map(|name| (*name).to_owned()).collect()));
        }
    }
}
