//! The roles of upstream's controllers, one for each program that acts with its own account. This server's own controllers
//! need none; `kube-controller-manager` does, when it is pointed at the root workspace.

use super::policy::{
    EVENTS, R,
    R::{Named, Of},
    READ, Subjects,
};

/// By the name of the account in `kube-system`; the role's name has `system:controller:` before it.
pub const CONTROLLERS: &[(&str, &[R])] = &[
    (
        "attachdetach-controller",
        &[
            Of("list watch", "core", "persistentvolumeclaims persistentvolumes"),
            Of(READ, "core", "nodes"),
            Of("patch update", "core", "nodes/status"),
            Of("list watch", "core", "pods"),
            EVENTS,
            Of("create delete get list watch", "storage.k8s.io", "volumeattachments"),
            Of(READ, "storage.k8s.io", "csidrivers"),
            Of(READ, "storage.k8s.io", "csinodes"),
        ],
    ),
    (
        "certificate-controller",
        &[
            Of("delete get list watch", "certificates.k8s.io", "certificatesigningrequests"),
            Of(
                "update",
                "certificates.k8s.io",
                "certificatesigningrequests/approval certificatesigningrequests/status",
            ),
            Named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet"),
            Named(
                "sign",
                "certificates.k8s.io",
                "signers",
                "kubernetes.io/kube-apiserver-client kubernetes.io/kube-apiserver-client-kubelet kubernetes.io/kubelet-serving kubernetes.io/legacy-unknown",
            ),
            Of("create", "authorization.k8s.io", "subjectaccessreviews"),
            EVENTS,
        ],
    ),
    (
        "clusterrole-aggregation-controller",
        &[Of("escalate get list patch update watch", "rbac.authorization.k8s.io", "clusterroles")],
    ),
    (
        "cronjob-controller",
        &[
            Of("get list update watch", "batch", "cronjobs"),
            Of("create delete get list patch update watch", "batch", "jobs"),
            Of("update", "batch", "cronjobs/status"),
            Of("update", "batch", "cronjobs/finalizers"),
            Of("delete list watch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "daemon-set-controller",
        &[
            Of(READ, "apps extensions", "daemonsets"),
            Of("update", "apps extensions", "daemonsets/status"),
            Of("update", "apps extensions", "daemonsets/finalizers"),
            Of("list watch", "core", "nodes"),
            Of("create delete list patch watch", "core", "pods"),
            Of("create", "core", "pods/binding"),
            Of("create delete get list patch update watch", "apps", "controllerrevisions"),
            EVENTS,
        ],
    ),
    (
        "deployment-controller",
        &[
            Of("get list update watch", "apps extensions", "deployments"),
            Of("update", "apps extensions", "deployments/status"),
            Of("update", "apps extensions", "deployments/finalizers"),
            Of("create delete get list patch update watch", "apps extensions", "replicasets"),
            Of("get list update watch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "device-taint-eviction-controller",
        &[
            Of("delete get list watch", "core", "pods"),
            Of("patch update", "core", "pods/status"),
            Of(READ, "resource.k8s.io", "resourceclaims"),
            Of(READ, "resource.k8s.io", "resourceslices"),
            Of(READ, "resource.k8s.io", "deviceclasses"),
            EVENTS,
        ],
    ),
    (
        "disruption-controller",
        &[
            Of(READ, "apps extensions", "deployments"),
            Of(READ, "apps extensions", "replicasets"),
            Of(READ, "core", "replicationcontrollers"),
            Of(READ, "policy", "poddisruptionbudgets"),
            Of(READ, "apps", "statefulsets"),
            Of("update", "policy", "poddisruptionbudgets/status"),
            Of("patch update", "core", "pods/status"),
            Of("get", "*", "*/scale"),
            EVENTS,
        ],
    ),
    (
        "endpoint-controller",
        &[
            Of(READ, "core", "pods services"),
            Of("create delete get list update watch", "core", "endpoints"),
            Of("create", "core", "endpoints/restricted"),
            EVENTS,
        ],
    ),
    (
        "endpointslice-controller",
        &[
            Of(READ, "core", "nodes pods services"),
            Of("update", "core", "services/finalizers"),
            Of("create delete get list update watch", "discovery.k8s.io", "endpointslices"),
            EVENTS,
        ],
    ),
    (
        "endpointslicemirroring-controller",
        &[
            Of(READ, "core", "endpoints services"),
            Of("update", "core", "services/finalizers"),
            Of("update", "core", "endpoints/finalizers"),
            Of("create delete get list update watch", "discovery.k8s.io", "endpointslices"),
            EVENTS,
        ],
    ),
    (
        "ephemeral-volume-controller",
        &[
            Of(READ, "core", "pods"),
            Of("update", "core", "pods/finalizers"),
            Of("create get list watch", "core", "persistentvolumeclaims"),
            EVENTS,
        ],
    ),
    (
        "expand-controller",
        &[
            Of("get list patch update watch", "core", "persistentvolumes"),
            Of("patch update", "core", "persistentvolumeclaims/status"),
            Of(READ, "core", "persistentvolumeclaims"),
            EVENTS,
        ],
    ),
    ("generic-garbage-collector", &[Of("delete get list patch update watch", "*", "*"), EVENTS]),
    (
        "horizontal-pod-autoscaler",
        &[
            Of(READ, "autoscaling", "horizontalpodautoscalers"),
            Of("update", "autoscaling", "horizontalpodautoscalers/status"),
            Of("get update", "*", "*/scale"),
            Of("list watch", "core", "pods"),
            Of("list watch", "metrics.k8s.io", "pods"),
            Of(READ, "custom.metrics.k8s.io", "*"),
            Of(READ, "external.metrics.k8s.io", "*"),
            EVENTS,
        ],
    ),
    (
        "job-controller",
        &[
            Of("get list patch update watch", "batch", "jobs"),
            Of("update", "batch", "jobs/status"),
            Of("update", "batch", "jobs/finalizers"),
            Of("create delete list patch watch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "legacy-service-account-token-cleaner",
        &[
            Named("get", "core", "configmaps", "kube-apiserver-legacy-service-account-token-tracking"),
            Of("delete patch", "core", "secrets"),
        ],
    ),
    (
        "namespace-controller",
        &[
            Of("delete get list watch", "core", "namespaces"),
            Of("update", "core", "namespaces/finalize namespaces/status"),
            Of("delete deletecollection get list watch", "*", "*"),
        ],
    ),
    (
        "node-controller",
        &[
            Of("delete get list patch update watch", "core", "nodes"),
            Of("patch update", "core", "nodes/status"),
            Of("patch update", "core", "pods/status"),
            Of("delete get list watch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "persistent-volume-binder",
        &[
            Of("create delete get list update watch", "core", "persistentvolumes"),
            Of("update", "core", "persistentvolumes/status"),
            Of("get list update watch", "core", "persistentvolumeclaims"),
            Of("update", "core", "persistentvolumeclaims/status"),
            Of("create delete get list watch", "core", "pods"),
            Of(READ, "storage.k8s.io", "storageclasses"),
            Of("list watch", "core", "nodes"),
            EVENTS,
            Of("watch", "core", "events"),
        ],
    ),
    (
        "pod-garbage-collector",
        &[Of("delete list watch", "core", "pods"), Of(READ, "core", "nodes"), Of("patch", "core", "pods/status")],
    ),
    ("pv-protection-controller", &[Of("get list update watch", "core", "persistentvolumes"), EVENTS]),
    (
        "pvc-protection-controller",
        &[
            Of("get list update watch", "core", "persistentvolumeclaims"),
            Of("update", "core", "persistentvolumeclaims/status"),
            Of(READ, "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "replicaset-controller",
        &[
            Of("get list update watch", "apps extensions", "replicasets"),
            Of("update", "apps extensions", "replicasets/status"),
            Of("update", "apps extensions", "replicasets/finalizers"),
            Of("create delete list patch watch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "replication-controller",
        &[
            Of("get list update watch", "core", "replicationcontrollers"),
            Of("update", "core", "replicationcontrollers/status"),
            Of("update", "core", "replicationcontrollers/finalizers"),
            Of("create delete list patch watch", "core", "pods"),
            EVENTS,
        ],
    ),
    (
        "resource-claim-controller",
        &[
            Of(READ, "core", "pods"),
            Of("update", "core", "pods/finalizers"),
            Of("create delete get list watch", "resource.k8s.io", "resourceclaims"),
            Of("patch update", "resource.k8s.io", "resourceclaims resourceclaims/status"),
            Of("patch update", "core", "pods/status"),
            EVENTS,
            Of("patch update", "resource.k8s.io", "resourceclaims/binding"),
        ],
    ),
    ("resourcequota-controller", &[Of("list watch", "*", "*"), Of("update", "core", "resourcequotas/status"), EVENTS]),
    ("root-ca-cert-publisher", &[Of("create update", "core", "configmaps"), EVENTS]),
    ("route-controller", &[Of("list watch", "core", "nodes"), Of("patch", "core", "nodes/status"), EVENTS]),
    (
        "selinux-warning-controller",
        &[
            EVENTS,
            Of(READ, "core", "persistentvolumes"),
            Of(READ, "core", "persistentvolumeclaims"),
            Of(READ, "core", "pods"),
            Of(READ, "storage.k8s.io", "csidrivers"),
        ],
    ),
    ("service-account-controller", &[Of("create", "core", "serviceaccounts"), EVENTS]),
    (
        "service-cidrs-controller",
        &[
            Of("get list patch update watch", "networking.k8s.io", "servicecidrs"),
            Of("patch update", "networking.k8s.io", "servicecidrs/finalizers"),
            Of("patch update", "networking.k8s.io", "servicecidrs/status"),
            Of(READ, "networking.k8s.io", "ipaddresses"),
            EVENTS,
        ],
    ),
    (
        "service-controller",
        &[
            Of(READ, "core", "services"),
            Of("patch update", "core", "services/status"),
            Of("list watch", "core", "nodes"),
            EVENTS,
        ],
    ),
    (
        "statefulset-controller",
        &[
            Of("list watch", "core", "pods"),
            Of(READ, "apps", "statefulsets"),
            Of("update", "apps", "statefulsets/status"),
            Of("update", "apps", "statefulsets/finalizers"),
            Of("create delete get patch update", "core", "pods"),
            Of("create delete get list patch update watch", "apps", "controllerrevisions"),
            Of("create get list watch", "core", "persistentvolumeclaims"),
            Of("delete update", "core", "persistentvolumeclaims"),
            Of("update", "core", "pods/finalizers"),
            EVENTS,
        ],
    ),
    ("ttl-after-finished-controller", &[Of("delete get list watch", "batch", "jobs"), EVENTS]),
    ("ttl-controller", &[Of("list patch update watch", "core", "nodes"), EVENTS]),
    (
        "validatingadmissionpolicy-status-controller",
        &[
            Of(READ, "admissionregistration.k8s.io", "validatingadmissionpolicies"),
            Of("get patch update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
            EVENTS,
        ],
    ),
    (
        "volumeattributesclass-protection-controller",
        &[
            Of(READ, "core", "persistentvolumeclaims"),
            Of(READ, "core", "persistentvolumes"),
            Of("get list update watch", "storage.k8s.io", "volumeattributesclasses"),
            EVENTS,
        ],
    ),
];

pub const EDGE_CLIENT: &str = "system:certificates.k8s.io:certificatesigningrequests:edgeclient";
pub const SELF_EDGE_CLIENT: &str = "system:certificates.k8s.io:certificatesigningrequests:selfedgeclient";

/// Further roles that upstream makes and binds to nobody.
pub const OTHERS: &[(&str, &[R])] = &[
    // Ours: who may have an edge's certificate without being asked who they are.
    (EDGE_CLIENT, &[Of("create", "certificates.k8s.io", "certificatesigningrequests/edgeclient")]),
    (SELF_EDGE_CLIENT, &[Of("create", "certificates.k8s.io", "certificatesigningrequests/selfedgeclient")]),
    (
        "system:certificates.k8s.io:kube-apiserver-client-approver",
        &[Named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client")],
    ),
    (
        "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
        &[Named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kube-apiserver-client-kubelet")],
    ),
    (
        "system:certificates.k8s.io:kubelet-serving-approver",
        &[Named("approve", "certificates.k8s.io", "signers", "kubernetes.io/kubelet-serving")],
    ),
    (
        "system:certificates.k8s.io:legacy-unknown-approver",
        &[Named("approve", "certificates.k8s.io", "signers", "kubernetes.io/legacy-unknown")],
    ),
    ("system:heapster", &[Of(READ, "core", "events namespaces nodes pods"), Of(READ, "extensions", "deployments")]),
    ("system:kube-aggregator", &[Of(READ, "core", "endpoints services")]),
    ("system:node-problem-detector", &[Of("get", "core", "nodes"), Of("patch", "core", "nodes/status"), EVENTS]),
];

/// The Roles of the system's namespaces: namespace, name, rules, and who has them.
pub type SystemRole = (&'static str, &'static str, &'static [R], Subjects);
const LOCKING: &[R] = &[
    Of("create get list update watch", "coordination.k8s.io", "leases"),
    Of("create get list update watch", "coordination.k8s.io", "leasecandidates"),
];
pub const SYSTEM_ROLES: &[SystemRole] = &[
    (
        "kube-system",
        "extension-apiserver-authentication-reader",
        &[Named(READ, "core", "configmaps", "extension-apiserver-authentication")],
        &[("User", "", "system:kube-controller-manager"), ("User", "", "system:kube-scheduler")],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        LOCKING,
        &[
            ("User", "", "system:kube-controller-manager"),
            ("ServiceAccount", "kube-system", "kube-controller-manager"),
            ("ServiceAccount", "kube-system", "leader-election-controller"),
        ],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        LOCKING,
        &[("User", "", "system:kube-scheduler"), ("ServiceAccount", "kube-system", "kube-scheduler")],
    ),
    (
        "kube-system",
        "system:controller:bootstrap-signer",
        &[Of(READ, "core", "secrets")],
        &[("ServiceAccount", "kube-system", "bootstrap-signer")],
    ),
    (
        "kube-system",
        "system:controller:cloud-provider",
        &[Of("create get list watch", "core", "configmaps")],
        &[("ServiceAccount", "kube-system", "cloud-provider")],
    ),
    (
        "kube-system",
        "system:controller:token-cleaner",
        &[Of("delete get list watch", "core", "secrets"), EVENTS],
        &[("ServiceAccount", "kube-system", "token-cleaner")],
    ),
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        &[Of(READ, "core", "configmaps"), Named("update", "core", "configmaps", "cluster-info"), EVENTS],
        &[("ServiceAccount", "kube-system", "bootstrap-signer")],
    ),
];
