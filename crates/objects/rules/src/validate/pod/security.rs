//! Security contexts, and what does not go with the pod's operating system.

use std::collections::HashSet;

use schema::names;

use super::Spec;
use super::volume::local_path;
use crate::validate::node::Node;

const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const MAX_SYSCTL: usize = 253;
const NOT_WINDOWS: &str = "cannot be set for a windows pod";

fn id(id: Node<'_>) {
    if let Some(number) = id.int() {
        for complaint in names::in_range(number, 0, i32::MAX.into()) {
            id.invalid(&complaint);
        }
    }
}

pub(super) fn pod(pod: Spec<'_>) {
    let context = pod.spec.get("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(context.get(field));
    }
    context.get("supplementalGroups").items().for_each(id);
    let share = pod.spec.get("shareProcessNamespace");
    if share.bool() && pod.spec.get("hostPID").bool() {
        context
            .get("shareProcessNamespace")
            .invalid_as(true, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
    sysctls(pod, context.get("sysctls"));
    if context.get("fsGroupChangePolicy").is_set() {
        context.get("fsGroupChangePolicy").one_of(&["Always", "OnRootMismatch"]);
    }
    seccomp(context.get("seccompProfile"));
    windows_options(context.get("windowsOptions"));
    app_armor(context.get("appArmorProfile"));
    if context.get("supplementalGroupsPolicy").is_set() {
        context.get("supplementalGroupsPolicy").one_of(&["Merge", "Strict"]);
    }
    if context.get("seLinuxChangePolicy").is_set() {
        context.get("seLinuxChangePolicy").one_of(&["MountOption", "Recursive"]);
    }
}

fn windows_options(options: Node<'_>) {
    let (name, spec, user) =
        (options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec"), options.get("runAsUserName"));
    if name.is_set() {
        name.check(names::dns1123_subdomain);
    }
    if spec.is_set() && spec.is_empty() {
        spec.invalid("gmsaCredentialSpec cannot be an empty string");
    } else if spec.str().len() > 64 * 1024 {
        spec.invalid("gmsaCredentialSpec size must be under 64 KiB");
    }
    if user.is_set() {
        windows_user(user);
    }
}

/// `user` or `DOMAIN\\user`.
fn windows_user(name: Node<'_>) {
    let parts: Vec<&str> = name.str().split('\\').collect();
    let (domain, user) = match parts[..] {
        [""] => return name.invalid("runAsUserName cannot be an empty string"),
        _ if name.str().contains(|c: char| c.is_ascii_control()) => {
            return name.invalid("runAsUserName cannot contain control characters");
        }
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return name.invalid("runAsUserName cannot contain more than one backslash"),
    };
    if domain.is_some_and(|domain| domain.len() >= 256) {
        name.invalid("runAsUserName's Domain length must be under 256 characters");
    }
    if user.is_empty() {
        name.invalid("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        name.invalid("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.bytes().all(|b| matches!(b, b'.' | b' ')) {
        name.invalid("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        name.invalid("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
}

fn is_sysctl(name: &str) -> bool {
    let word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let segment = |text: &str| {
        let bytes = text.as_bytes();
        bytes.first().is_some_and(word)
            && bytes.last().is_some_and(word)
            && bytes.iter().all(|b| word(b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= MAX_SYSCTL && name.split(['.', '/']).all(segment)
}

fn sysctls(pod: Spec<'_>, list: Node<'_>) {
    let mut seen = HashSet::new();
    for sysctl in list.items() {
        let name = sysctl.get("name");
        if name.str().is_empty() {
            name.required("");
        } else if !is_sysctl(name.str()) {
            name.invalid(&format!("must have at most {MAX_SYSCTL} characters and match regex {SYSCTL}"));
        } else if seen.contains(name.str()) {
            name.duplicate();
        }
        let dotted = name.str().replace('/', ".");
        if pod.spec.get("hostNetwork").bool() && dotted.starts_with("net.") {
            name.invalid("may not be specified when 'hostNetwork' is true");
        }
        let ipc =
            ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| dotted.starts_with(p)) || dotted == "kernel.sem";
        if pod.spec.get("hostIPC").bool() && ipc {
            name.invalid("may not be specified when 'hostIPC' is true");
        }
        seen.insert(name.str());
    }
}

fn seccomp(profile: Node<'_>) {
    if !profile.is_set() {
        return;
    }
    let (kind, path) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.str() {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => kind.required("type is required when seccompProfile is set"),
        _ => kind.not_supported(&["Localhost", "RuntimeDefault", "Unconfined"]),
    }
    if kind.str() == "Localhost" {
        if path.is_set() {
            local_path(path);
        } else {
            path.required("must be set when seccomp type is Localhost");
        }
    } else if path.is_set() {
        let shown = format!("{{\"Type\":{},\"LocalhostProfile\":{}}}", kind.value, path.value);
        path.invalid_as(shown, "can only be set when seccomp type is Localhost");
    }
}

fn app_armor(profile: Node<'_>) {
    if !profile.is_set() {
        return;
    }
    let (kind, path) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.str() {
        "Localhost" => {
            if !path.is_set() {
                return path.required("must be set when AppArmor type is Localhost");
            }
            if path.str().trim() != path.str() {
                path.invalid("must not be padded with whitespace");
            } else if path.str().is_empty() {
                path.required("must be set when AppArmor type is Localhost");
            }
            if path.str().len() > 4095 {
                path.too_long(4095);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if path.is_set() {
                path.invalid("can only be set when AppArmor type is Localhost");
            }
        }
        "" => kind.required("type is required when appArmorProfile is set"),
        _ => kind.not_supported(&["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

pub(super) fn container(context: Node<'_>, host_users: bool) {
    if !context.is_set() {
        return;
    }
    id(context.get("runAsUser"));
    id(context.get("runAsGroup"));
    let proc_mount = context.get("procMount");
    if proc_mount.is_set() {
        proc_mount.one_of(&["Default", "Unmasked"]);
        if host_users && proc_mount.str() == "Unmasked" {
            proc_mount.invalid("`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(context.get("seccompProfile"));
    if context.get("allowPrivilegeEscalation").value.as_bool() == Some(false) {
        let shown = || crate::validate::internal::shown("SecurityContext", context.value);
        if context.get("privileged").bool() {
            context.invalid_as(shown(), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        for capability in context.get("capabilities").get("add").array() {
            if capability.as_str() == Some("CAP_SYS_ADMIN") {
                context.invalid_as(
                    shown(),
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
                );
            }
        }
    }
    windows_options(context.get("windowsOptions"));
    app_armor(context.get("appArmorProfile"));
}

pub(super) fn windows_host_process(pod: Spec<'_>) {
    let of = |node: Node<'_>| node.get("securityContext").get("windowsOptions").get("hostProcess").value.as_bool();
    let whole = of(pod.spec);
    let (mut all, mut hosts) = (0, 0);
    for container in pod.containers() {
        all += 1;
        let own = of(container);
        if let (Some(whole), Some(own)) = (whole, own)
            && whole != own
        {
            let at = container.get("securityContext").get("windowsOptions").get("hostProcess");
            at.invalid(&format!("pod hostProcess value must be identical if both are specified, was {whole}"));
        }
        hosts += i32::from(own.or(whole) == Some(true));
    }
    if hosts > 0 {
        if hosts != all {
            pod.spec.invalid_text(
                "",
                "If pod contains any hostProcess containers then all containers must be HostProcess containers",
            );
        }
        if !pod.spec.get("hostNetwork").bool() {
            pod.spec
                .get("hostNetwork")
                .invalid_as(false, "hostNetwork must be true if pod contains any hostProcess containers");
        }
    }
}

pub(super) fn host_users(pod: Spec<'_>) {
    if pod.host_users() {
        return;
    }
    let spec = pod.spec;
    for (field, path) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.get(field).bool() {
            spec.get(path).forbidden("when `hostUsers` is false");
        }
    }
    for container in pod.containers() {
        if !container.get("volumeDevices").is_empty() {
            container.get("volumeDevices").forbidden("when `hostUsers` is false");
        }
    }
}

pub(super) fn os(pod: Spec<'_>) {
    let os = pod.spec.get("os");
    if !os.is_set() {
        return;
    }
    match os.get("name").str() {
        "" => os.get("name").required(""),
        "linux" => {
            for holder in std::iter::once(pod.spec).chain(pod.containers()) {
                let options = holder.get("securityContext").get("windowsOptions");
                if options.is_set() {
                    options.forbidden("windows options cannot be set for a linux pod");
                }
            }
        }
        "windows" => windows(pod),
        name => os.not_supported_as(crate::validate::node::Quoted(name), &["linux", "windows"]),
    }
}

fn windows(pod: Spec<'_>) {
    let (spec, context) = (pod.spec, pod.spec.get("securityContext"));
    let refuse = |node: Node<'_>| {
        if node.is_set() {
            node.forbidden(NOT_WINDOWS);
        }
    };
    refuse(context.get("appArmorProfile"));
    refuse(context.get("seLinuxOptions"));
    refuse(spec.get("hostUsers"));
    for field in ["hostPID", "hostIPC"] {
        if spec.get(field).bool() {
            spec.get(field).forbidden(NOT_WINDOWS);
        }
    }
    for field in ["seccompProfile", "fsGroup", "fsGroupChangePolicy"] {
        refuse(context.get(field));
    }
    if !context.get("sysctls").is_empty() {
        context.get("sysctls").forbidden(NOT_WINDOWS);
    }
    refuse(spec.get("shareProcessNamespace"));
    for field in ["runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"] {
        refuse(context.get(field));
    }
    for container in pod.containers() {
        let context = container.get("securityContext");
        for field in [
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ] {
            refuse(context.get(field));
        }
    }
}
