//! A pod as the checks of PodSecurity look at it, and the words they share.

use serde_json::Value;

pub struct Pod<'a> {
    pub metadata: &'a Value,
    pub spec: &'a Value,
}

/// One thing that a policy forbids, and who does it.
#[derive(Debug, PartialEq)]
pub struct Violation {
    pub reason: &'static str,
    pub detail: String,
}

pub fn violation(reason: &'static str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason, detail: detail.into() })
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

impl Pod<'_> {
    /// All containers: those that start it, run in it and debug it.
    pub fn containers(&self) -> impl Iterator<Item = &Value> {
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(|field| items(&self.spec[field]))
    }

    pub fn context(&self) -> &Value {
        &self.spec["securityContext"]
    }

    /// Names of the containers whose security context is like this.
    pub fn named(&self, is: impl Fn(&Value) -> bool) -> Vec<&str> {
        self.containers().filter(|c| is(&c["securityContext"])).map(|c| text(&c["name"])).collect()
    }

    pub fn is_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }
}

/// `"a", "b"`, each once, in order.
pub fn quoted(names: &[&str]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(name);
        }
    }
    seen.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

pub fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"`, `containers "a", "b"`.
pub fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// `pod and containers "a", "b"`: whoever of them is to blame.
pub fn blamed(pod: bool, names: &[&str]) -> Option<String> {
    match (pod, names.is_empty()) {
        (false, true) => None,
        (true, true) => Some("pod".to_owned()),
        (false, false) => Some(containers(names)),
        (true, false) => Some(format!("pod and {}", containers(names))),
    }
}
