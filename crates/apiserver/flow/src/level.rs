//! What a request counts as: its level, whose it is, and how many seats it takes.

use identity::User;
use request::{Query, ROOT, Target, Verb};

/// Requests of one level share seats; levels do not take seats from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Read,
    Write,
    /// What the system itself needs to go on: leader election, the heartbeats of nodes, administrators, controllers.
    System,
}

/// A list of so many objects takes one seat more, up to `WIDEST`; upstream counts the same way.
const OBJECTS_PER_SEAT: usize = 100;
pub const WIDEST: usize = 10;

pub fn level(user: &User, cluster: &str, verb: Verb, target: &Target) -> Level {
    let of = |group: &str| user.groups.iter().any(|g| g == group);
    // In a workspace of its own a tenant may call anybody as it likes, and make any lease; in ours these names are what
    // they say.
    let ours = cluster == ROOT
        && (target.group == "coordination.k8s.io" && target.resource == "leases"
            || user.name == "system:kube-controller-manager"
            || user.name == "system:kube-scheduler"
            || of("system:serviceaccounts:kube-system")
            || (of("system:nodes") && target.resource == "nodes"));
    match verb {
        _ if ours || user.rules_everywhere() => Level::System,
        Verb::Get | Verb::List | Verb::Watch => Level::Read,
        _ => Level::Write,
    }
}

/// Paths that are no resources: health, version and metrics are always answered.
pub fn level_of_path(user: &User, path: &str) -> Option<Level> {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match first {
        "healthz" | "livez" | "readyz" | "version" | "metrics" => None,
        _ if user.rules_everywhere() => Some(Level::System),
        _ => Some(Level::Read),
    }
}

/// How many objects have to be looked at to know how wide a list is.
pub const ENOUGH: usize = OBJECTS_PER_SEAT * WIDEST;

/// `there` says how many objects the request covers, at most `ENOUGH` of them.
pub fn width(verb: Verb, query: &Query, there: impl FnOnce() -> usize) -> usize {
    if !matches!(verb, Verb::List | Verb::DeleteCollection) {
        return 1;
    }
    let there = there();
    // With selectors everything is looked at, however little is shown.
    let selects = !query.get("labelSelector").is_empty() || !query.get("fieldSelector").is_empty();
    let shown = match query.get("limit").parse::<usize>() {
        Ok(limit) if limit > 0 && !selects => there.min(limit),
        _ => there,
    };
    (1 + shown / OBJECTS_PER_SEAT).min(WIDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_has_a_level_of_its_own_but_not_by_name_alone() {
        let user = |name: &str, group: &str| User { name: name.into(), groups: vec![group.into()], ..User::default() };
        let target = |group: &str, resource: &str| Target {
            group: group.into(),
            resource: resource.into(),
            ..Target::default()
        };
        let pods = target("", "pods");
        let mut confined = user("alice", "system:masters");
        confined.confine("root:a");
        for (who, cluster, verb, what, expected) in [
            (user("alice", "devs"), "root:a", Verb::List, &pods, Level::Read),
            (user("alice", "devs"), "root:a", Verb::Patch, &pods, Level::Write),
            (user("alice", "system:masters"), "root:a", Verb::Patch, &pods, Level::System),
            (confined.clone(), "root:a", Verb::Patch, &pods, Level::Write),
            (confined.clone(), "root:a", Verb::List, &pods, Level::Read),
            (user("alice", "devs"), ROOT, Verb::Update, &target("coordination.k8s.io", "leases"), Level::System),
            (user("alice", "devs"), "root:a", Verb::Update, &target("coordination.k8s.io", "leases"), Level::Write),
            (user("system:kube-scheduler", ""), ROOT, Verb::List, &pods, Level::System),
            (user("system:kube-scheduler", ""), "root:a", Verb::List, &pods, Level::Read),
            (user("x", "system:serviceaccounts:kube-system"), "root:a", Verb::Create, &pods, Level::Write),
            (user("system:node:n", "system:nodes"), ROOT, Verb::Patch, &target("", "nodes"), Level::System),
            (user("system:node:n", "system:nodes"), ROOT, Verb::Get, &target("", "secrets"), Level::Read),
        ] {
            assert_eq!(level(&who, cluster, verb, what), expected, "{who:?} {cluster} {verb:?}");
        }
        let paths =
            [("/readyz/etcd", None), ("/metrics", None), ("/openapi/v3", Some(Level::Read)), ("", Some(Level::Read))];
        for (path, expected) in paths {
            assert_eq!(level_of_path(&user("alice", "devs"), path), expected, "{path}");
            assert_eq!(level_of_path(&confined, path), expected, "{path}");
        }
    }
}
