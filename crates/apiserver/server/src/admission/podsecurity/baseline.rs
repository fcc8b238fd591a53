//! What the baseline policy forbids: the known ways out of a container. In the order in which upstream tells of them.

use serde_json::Value;

use super::pod::{Pod, Violation, blamed, containers, items, plural, quoted, text, violation};

const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Names of sysctls that are safe, and since which minor version they are said to be.
const SYSCTLS: &[(&str, u32)] = &[
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

const SELINUX_TYPES: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];

pub fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let annotation = "container.apparmor.security.beta.kubernetes.io/";
    let mut details = Vec::new();
    let forbidden = |profile: &Value| {
        profile["type"].is_string() && !matches!(text(&profile["type"]), "RuntimeDefault" | "Localhost")
    };
    let names = pod.named(|context| forbidden(&context["appArmorProfile"]));
    let whole = forbidden(&pod.context()["appArmorProfile"]);
    if let Some(who) = blamed(whole, &names) {
        details.push(format!("{who} must not set AppArmor profile type to \"Unconfined\""));
    }
    let annotations = pod.metadata["annotations"].as_object().into_iter().flatten();
    let bad: Vec<String> = annotations
        .filter(|(key, value)| {
            let profile = text(value);
            key.starts_with(annotation)
                && !(matches!(profile, "" | "runtime/default") || profile.starts_with("localhost/"))
        })
        .map(|(key, value)| format!("{key}={:?}", text(value)))
        .collect();
    if !bad.is_empty() {
        details.push(format!("{} {}", plural("annotation", "annotations", bad.len()), bad.join(", ")));
    }
    if details.is_empty() { None } else { violation("forbidden AppArmor profile", details.join("; ")) }
}

/// What containers add beyond what is allowed: who, and what.
pub fn added<'a>(pod: &'a Pod<'_>, allowed: &[&str]) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut names, mut capabilities) = (Vec::new(), Vec::new());
    for container in pod.containers() {
        let add = items(&container["securityContext"]["capabilities"]["add"]).map(text);
        let bad: Vec<&str> = add.filter(|c| !allowed.contains(c)).collect();
        if !bad.is_empty() {
            names.push(text(&container["name"]));
            capabilities.extend(bad);
        }
    }
    capabilities.sort_unstable();
    (names, capabilities)
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let (names, bad) = added(pod, CAPABILITIES);
    if names.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not include {} in securityContext.capabilities.add", containers(&names), quoted(&bad));
    violation("non-default capabilities", detail)
}

pub fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let used = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[*field] == true);
    let used: Vec<String> = used.map(|field| format!("{field}=true")).collect();
    if used.is_empty() { None } else { violation("host namespaces", used.join(", ")) }
}

pub fn host_path(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = items(&pod.spec["volumes"]).filter(|v| v["hostPath"].is_object());
    let names: Vec<&str> = volumes.map(|v| text(&v["name"])).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names)))
}

pub fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for container in pod.containers() {
        let used: Vec<i64> =
            items(&container["ports"]).filter_map(|p| p["hostPort"].as_i64()).filter(|p| *p != 0).collect();
        if !used.is_empty() {
            names.push(text(&container["name"]));
            ports.extend(used);
        }
    }
    if names.is_empty() {
        return None;
    }
    ports.sort_unstable();
    ports.dedup();
    let (use_them, what) = (plural("uses", "use", names.len()), plural("hostPort", "hostPorts", ports.len()));
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    violation("hostPort", format!("{} {use_them} {what} {}", containers(&names), ports.join(", ")))
}

/// Probes and hooks that reach for another host than the pod.
pub fn host_probes(pod: &Pod<'_>) -> Option<Violation> {
    let mut names = Vec::new();
    for container in pod.containers() {
        let handlers = [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &container["lifecycle"]["postStart"],
            &container["lifecycle"]["preStop"],
        ];
        let elsewhere = |host: &Value| !matches!(text(host), "" | "127.0.0.1" | "::1");
        if handlers.iter().any(|h| elsewhere(&h["httpGet"]["host"]) || elsewhere(&h["tcpSocket"]["host"])) {
            names.push(text(&container["name"]));
        }
    }
    if names.is_empty() {
        return None;
    }
    let verb = plural("uses", "use", names.len());
    violation("probe or lifecycle host", format!("{} {verb} probe or lifecycle host", containers(&names)))
}

pub fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.named(|context| context["privileged"] == true);
    let who = blamed(false, &names)?;
    violation("privileged", format!("{who} must not set securityContext.privileged=true"))
}

pub fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.named(|context| !matches!(text(&context["procMount"]), "" | "Default"));
    let who = blamed(false, &names)?;
    let mut kinds: Vec<&str> = pod.containers().map(|c| text(&c["securityContext"]["procMount"])).collect();
    kinds.retain(|kind| !matches!(*kind, "" | "Default"));
    violation("procMount", format!("{who} must not set securityContext.procMount to {}", quoted(&kinds)))
}

pub fn selinux(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    let fine = |ty: &str| SELINUX_TYPES.contains(&ty) || (minor >= 31 && ty == "container_engine_t");
    let bad = |context: &Value| {
        let options = &context["seLinuxOptions"];
        !fine(text(&options["type"])) || !text(&options["user"]).is_empty() || !text(&options["role"]).is_empty()
    };
    let names = pod.named(bad);
    let who = blamed(bad(pod.context()), &names)?;
    let all = || {
        std::iter::once(pod.context())
            .chain(pod.containers().map(|c| &c["securityContext"]))
            .map(|c| &c["seLinuxOptions"])
    };
    let types: Vec<&str> = all().map(|o| text(&o["type"])).filter(|ty| !fine(ty)).collect();
    let mut why = Vec::new();
    if !types.is_empty() {
        why.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    for field in ["user", "role"] {
        if all().any(|o| !text(&o[field]).is_empty()) {
            why.push(format!("{field} may not be set"));
        }
    }
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", why.join("; ")))
}

/// Types of seccomp profiles that are forbidden everywhere, with who sets them.
pub fn unconfined<'a>(pod: &'a Pod<'_>) -> (bool, Vec<&'a str>) {
    let bad = |context: &Value| {
        let ty = &context["seccompProfile"]["type"];
        ty.is_string() && !matches!(text(ty), "RuntimeDefault" | "Localhost")
    };
    (bad(pod.context()), pod.named(bad))
}

pub fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let (whole, names) = unconfined(pod);
    let who = blamed(whole, &names)?;
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to \"Unconfined\""))
}

pub fn sysctls(pod: &Pod<'_>, minor: u32) -> Option<Violation> {
    let safe = |name: &str| SYSCTLS.iter().any(|(known, since)| *known == name && minor >= *since);
    let bad: Vec<&str> =
        items(&pod.context()["sysctls"]).map(|s| text(&s["name"])).filter(|name| !safe(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

pub fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
    let names = pod.named(is);
    let who = blamed(is(pod.context()), &names)?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
