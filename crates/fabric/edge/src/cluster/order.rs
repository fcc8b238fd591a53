//! In which order kinds go to a cluster, and in which they go away again. Pure.

/// A step of the order: everything of one step is asked for before anything of the next is begun.
pub type Phase = u8;

/// So many phases there are.
pub const PHASES: usize = 8;

/// Where others live, and what defines others.
const FIRST: [&str; 2] = ["core/namespaces", "apiextensions.k8s.io/customresourcedefinitions"];

/// What others read, mount, run as or are measured by.
const SECOND: [&str; 12] = [
    "core/configmaps",
    "core/secrets",
    "core/serviceaccounts",
    "core/services",
    "core/limitranges",
    "core/resourcequotas",
    "core/persistentvolumes",
    "core/persistentvolumeclaims",
    "networking.k8s.io/networkpolicies",
    "scheduling.k8s.io/priorityclasses",
    "node.k8s.io/runtimeclasses",
    "networking.k8s.io/ingressclasses",
];

const SECOND_GROUPS: [&str; 3] = ["rbac.authorization.k8s.io", "storage.k8s.io", "resource.k8s.io"];

/// What may stand in everybody's way until what it needs runs.
const LAST_GROUPS: [&str; 2] = ["admissionregistration.k8s.io", "apiregistration.k8s.io"];

fn tier(collection: &str) -> Phase {
    let group = collection.split('/').next().unwrap_or_default();
    if FIRST.contains(&collection) {
        0
    } else if SECOND.contains(&collection) || SECOND_GROUPS.contains(&group) {
        1
    } else if LAST_GROUPS.contains(&group) {
        3
    } else {
        2
    }
}

/// When an object is applied. What is to be there comes before what is to go.
pub fn applied_in(collection: &str) -> Phase {
    tier(collection)
}

/// When an object is deleted: in the opposite order.
pub fn deleted_in(collection: &str) -> Phase {
    PHASES as Phase - 1 - tier(collection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_need_comes_first_and_goes_last() {
        let all = [
            "core/namespaces",
            "core/serviceaccounts",
            "apps/deployments",
            "admissionregistration.k8s.io/validatingwebhookconfigurations",
        ];
        for pair in all.windows(2) {
            assert!(applied_in(pair[0]) < applied_in(pair[1]), "{pair:?}");
            assert!(deleted_in(pair[0]) > deleted_in(pair[1]), "{pair:?}");
        }
        assert!(applied_in(all[3]) < deleted_in(all[3]));
        assert_eq!(applied_in("example.com/widgets"), applied_in("batch/jobs"));
        assert_eq!(applied_in("rbac.authorization.k8s.io/roles"), applied_in("core/configmaps"));
    }
}
