//! What a container finds in its environment: what its pod says, what says where it is, and nothing of ours.

use std::{collections::BTreeMap, path::Path};

use pods::runtime::ContainerSpec;

/// The agent's, for a container that runs as the same user; another user has its own ([`crate::home`]).
pub const HOME: &str = "HOME";

/// Of the agent's own environment, only what says how this machine is.
pub const PASSED: [&str; 4] = ["PATH", HOME, "TZ", "LANG"];

/// Where people look for programs when nothing says so.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub struct Place<'a> {
    pub node: &'a str,
    pub edge: &'a str,
    pub root: &'a Path,
    /// What the image says.
    pub image: &'a BTreeMap<String, String>,
}

pub fn environment(
    passed: impl IntoIterator<Item = (String, String)>,
    place: &Place<'_>,
    container: &ContainerSpec,
) -> Vec<(String, String)> {
    let (namespace, name) = container.pod.split_once('/').unwrap_or(("", &container.pod));
    let mut env = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
    env.extend(passed);
    env.extend(place.image.clone());
    let mut set = |name: &str, value: &str| env.insert(name.to_owned(), value.to_owned());
    set("HOSTNAME", name);
    set("PORT", "8080");
    set("SELVEDGE_POD", &container.pod);
    set("SELVEDGE_NAMESPACE", namespace);
    set("SELVEDGE_NODE", place.node);
    set("SELVEDGE_EDGE", place.edge);
    if let Some(address) = container.address {
        set("POD_IP", &address.to_string());
        set("HOST", &address.to_string());
    }
    if container.tty {
        set("TERM", "xterm");
    }
    env.extend(container.env.iter().cloned());
    env.insert("SELVEDGE_ROOT".to_owned(), place.root.display().to_string());
    env.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use pods::runtime::{Capabilities, ContainerId, Limits, User};

    use super::*;

    #[test]
    fn the_pod_has_the_last_word_but_for_its_root() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let container = ContainerSpec {
            id: ContainerId { pod: "u".into(), name: "c".into(), attempt: 0 },
            pod: "default/web-1".into(),
            image: String::new(),
            command: vec![],
            args: vec![],
            env: vec![
                pair("PORT", "80"),
                pair("A", "1"),
                pair("A", "2"),
                pair("SELVEDGE_ROOT", "/"),
                pair("HOME", "/app"),
            ],
            working_dir: None,
            mounts: vec![],
            limits: Limits::default(),
            address: Some([127, 9, 0, 2].into()),
            log: "/log".into(),
            tty: false,
            stdin: false,
            user: User::default(),
            hostname: String::new(),
            no_new_privileges: false,
            capabilities: Capabilities::default(),
            restrictions: vec![],
        };
        let of_image = BTreeMap::from([("A".to_owned(), "0".to_owned()), ("OF_IMAGE".to_owned(), "yes".to_owned())]);
        let place = Place { node: "n", edge: "e", root: Path::new("/r"), image: &of_image };
        let env = environment([pair("HOME", "/root"), pair("TZ", "UTC")], &place, &container);
        let expected = [
            ("A", "2"),
            ("HOME", "/app"),
            ("HOST", "127.9.0.2"),
            ("HOSTNAME", "web-1"),
            ("OF_IMAGE", "yes"),
            ("PATH", PATH),
            ("POD_IP", "127.9.0.2"),
            ("PORT", "80"),
            ("SELVEDGE_EDGE", "e"),
            ("SELVEDGE_NAMESPACE", "default"),
            ("SELVEDGE_NODE", "n"),
            ("SELVEDGE_POD", "default/web-1"),
            ("SELVEDGE_ROOT", "/r"),
            ("TZ", "UTC"),
        ];
        assert_eq!(env, expected.map(|(name, value)| pair(name, value)));
    }
}
