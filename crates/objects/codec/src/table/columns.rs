//! The columns of built-in resources, as the reference server shows them.

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    pub format: &'static str,
    /// Columns above 0 are for wide output.
    pub priority: i32,
}

const fn column(name: &'static str, kind: &'static str, priority: i32) -> Column {
    Column { name, kind, format: "", priority }
}

const fn text(name: &'static str) -> Column {
    column(name, "string", 0)
}

const fn wide(name: &'static str) -> Column {
    column(name, "string", 1)
}

const fn integer(name: &'static str) -> Column {
    column(name, "integer", 0)
}

const fn boolean(name: &'static str) -> Column {
    column(name, "boolean", 0)
}

const NAME: Column = Column { name: "Name", kind: "string", format: "name", priority: 0 };
const AGE: Column = text("Age");

/// What is shown of resources that have no printer of their own.
pub const DEFAULT: &[Column] = &[NAME, column("Created At", "date", 0)];

/// The columns of a built-in resource; `None` if nothing but the default is known for it.
pub fn columns(group: &str, version: &str, resource: &str) -> Option<&'static [Column]> {
    Some(match (group, version, resource) {
        ("", "v1", "componentstatuses") => const { &[NAME, text("Status"), text("Message"), text("Error")] },
        ("", "v1", "configmaps") => const { &[NAME, text("Data"), AGE] },
        ("", "v1", "endpoints") => const { &[NAME, text("Endpoints"), AGE] },
        ("", "v1", "events") | ("events.k8s.io", "v1", "events") => {
            const {
                &[
                    text("Last Seen"),
                    text("Type"),
                    text("Reason"),
                    text("Object"),
                    wide("Subobject"),
                    wide("Source"),
                    text("Message"),
                    wide("First Seen"),
                    wide("Count"),
                    Column { name: "Name", kind: "string", format: "name", priority: 1 },
                ]
            }
        }
        ("", "v1", "limitranges")
        | ("rbac.authorization.k8s.io", "v1", "clusterroles")
        | ("rbac.authorization.k8s.io", "v1", "roles")
        | ("storage.k8s.io", "v1", "csistoragecapacities")
        | ("apiextensions.k8s.io", "v1", "customresourcedefinitions") => DEFAULT,
        ("", "v1", "namespaces") => const { &[NAME, text("Status"), AGE] },
        ("", "v1", "nodes") => {
            const {
                &[
                    NAME,
                    text("Status"),
                    text("Roles"),
                    AGE,
                    text("Version"),
                    wide("Internal-IP"),
                    wide("External-IP"),
                    wide("OS-Image"),
                    wide("Kernel-Version"),
                    wide("Container-Runtime"),
                ]
            }
        }
        ("", "v1", "persistentvolumeclaims") => {
            const {
                &[
                    NAME,
                    text("Status"),
                    text("Volume"),
                    text("Capacity"),
                    text("Access Modes"),
                    text("StorageClass"),
                    text("VolumeAttributesClass"),
                    AGE,
                    wide("VolumeMode"),
                ]
            }
        }
        ("", "v1", "persistentvolumes") => {
            const {
                &[
                    NAME,
                    text("Capacity"),
                    text("Access Modes"),
                    text("Reclaim Policy"),
                    text("Status"),
                    text("Claim"),
                    text("StorageClass"),
                    text("VolumeAttributesClass"),
                    text("Reason"),
                    AGE,
                    wide("VolumeMode"),
                ]
            }
        }
        ("", "v1", "pods") => {
            const {
                &[
                    NAME,
                    text("Ready"),
                    text("Status"),
                    text("Restarts"),
                    AGE,
                    wide("IP"),
                    wide("Node"),
                    wide("Nominated Node"),
                    wide("Readiness Gates"),
                ]
            }
        }
        ("", "v1", "podtemplates") => const { &[NAME, text("Containers"), text("Images"), text("Pod Labels")] },
        ("", "v1", "replicationcontrollers") | ("apps", "v1", "replicasets") => {
            const {
                &[
                    NAME,
                    integer("Desired"),
                    integer("Current"),
                    integer("Ready"),
                    AGE,
                    wide("Containers"),
                    wide("Images"),
                    wide("Selector"),
                ]
            }
        }
        ("", "v1", "resourcequotas") => const { &[NAME, text("Request"), text("Limit"), AGE] },
        ("", "v1", "secrets") => const { &[NAME, text("Type"), text("Data"), AGE] },
        ("", "v1", "serviceaccounts")
        | ("resource.k8s.io", "v1", "deviceclasses")
        | ("resource.k8s.io", "v1", "resourceclaimtemplates") => const { &[NAME, AGE] },
        ("", "v1", "services") => {
            const { &[NAME, text("Type"), text("Cluster-IP"), text("External-IP"), text("Port(s)"), AGE, wide("Selector")] }
        }
        ("apiregistration.k8s.io", "v1", "apiservices") => const { &[NAME, text("Service"), text("Available"), AGE] },
        ("apps", "v1", "controllerrevisions") => const { &[NAME, text("Controller"), text("Revision"), AGE] },
        ("apps", "v1", "daemonsets") => {
            const {
                &[
                    NAME,
                    integer("Desired"),
                    integer("Current"),
                    integer("Ready"),
                    integer("Up-to-date"),
                    integer("Available"),
                    text("Node Selector"),
                    AGE,
                    wide("Containers"),
                    wide("Images"),
                    wide("Selector"),
                ]
            }
        }
        ("apps", "v1", "deployments") => {
            const {
                &[
                    NAME,
                    text("Ready"),
                    text("Up-to-date"),
                    text("Available"),
                    AGE,
                    wide("Containers"),
                    wide("Images"),
                    wide("Selector"),
                ]
            }
        }
        ("apps", "v1", "statefulsets") => const { &[NAME, text("Ready"), AGE, wide("Containers"), wide("Images")] },
        ("autoscaling", "v2", "horizontalpodautoscalers") | ("autoscaling", "v1", "horizontalpodautoscalers") => {
            const { &[NAME, text("Reference"), text("Targets"), text("MinPods"), text("MaxPods"), text("Replicas"), AGE] }
        }
        ("batch", "v1", "cronjobs") => {
            const {
                &[
                    NAME,
                    text("Schedule"),
                    text("Timezone"),
                    boolean("Suspend"),
                    integer("Active"),
                    text("Last Schedule"),
                    AGE,
                    wide("Containers"),
                    wide("Images"),
                    wide("Selector"),
                ]
            }
        }
        ("batch", "v1", "jobs") => {
            const {
                &[
                    NAME,
                    text("Status"),
                    text("Completions"),
                    text("Duration"),
                    AGE,
                    wide("Containers"),
                    wide("Images"),
                    wide("Selector"),
                ]
            }
        }
        ("certificates.k8s.io", "v1", "certificatesigningrequests") => {
            const { &[NAME, AGE, text("SignerName"), text("Requestor"), text("RequestedDuration"), text("Condition")] }
        }
        ("networking.k8s.io", "v1", "ingressclasses") => const { &[NAME, text("Controller"), text("Parameters"), AGE] },
        ("networking.k8s.io", "v1", "ingresses") => {
            const { &[NAME, text("Class"), text("Hosts"), text("Address"), text("Ports"), AGE] }
        }
        ("networking.k8s.io", "v1", "ipaddresses") => const { &[NAME, text("ParentRef")] },
        ("networking.k8s.io", "v1", "networkpolicies") => const { &[NAME, text("Pod-Selector"), AGE] },
        ("networking.k8s.io", "v1", "servicecidrs") => const { &[NAME, text("CIDRs"), AGE] },
        ("policy", "v1", "poddisruptionbudgets") => {
            const { &[NAME, text("Min Available"), text("Max Unavailable"), integer("Allowed Disruptions"), AGE] }
        }
        ("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
        | ("rbac.authorization.k8s.io", "v1", "rolebindings") => {
            const { &[NAME, text("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")] }
        }
        ("storage.k8s.io", "v1", "csidrivers") => {
            const {
                &[
                    NAME,
                    boolean("AttachRequired"),
                    boolean("PodInfoOnMount"),
                    boolean("StorageCapacity"),
                    text("TokenRequests"),
                    boolean("RequiresRepublish"),
                    text("Modes"),
                    AGE,
                ]
            }
        }
        ("storage.k8s.io", "v1", "csinodes") => const { &[NAME, integer("Drivers"), AGE] },
        ("storage.k8s.io", "v1", "storageclasses") => {
            const {
                &[
                    NAME,
                    text("Provisioner"),
                    text("ReclaimPolicy"),
                    text("VolumeBindingMode"),
                    text("AllowVolumeExpansion"),
                    AGE,
                ]
            }
        }
        ("storage.k8s.io", "v1", "volumeattachments") => {
            const {
                &[
                    NAME,
                    Column { name: "Attacher", kind: "string", format: "name", priority: 0 },
                    text("PV"),
                    text("Node"),
                    boolean("Attached"),
                    AGE,
                ]
            }
        }
        ("storage.k8s.io", "v1", "volumeattributesclasses") => const { &[NAME, text("DriverName"), AGE] },
        ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies") => {
            const { &[NAME, integer("Mutations"), text("ParamKind"), AGE] }
        }
        ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings")
        | ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings") => {
            const { &[NAME, text("PolicyName"), text("ParamRef"), AGE] }
        }
        ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
        | ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations") => {
            const { &[NAME, integer("Webhooks"), AGE] }
        }
        ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies") => {
            const { &[NAME, integer("Validations"), text("ParamKind"), AGE] }
        }
        ("scheduling.k8s.io", "v1", "priorityclasses") => {
            const { &[NAME, integer("Value"), boolean("Global-Default"), AGE, text("PreemptionPolicy")] }
        }
        ("coordination.k8s.io", "v1", "leases") => const { &[NAME, text("Holder"), AGE] },
        ("node.k8s.io", "v1", "runtimeclasses") => const { &[NAME, text("Handler"), AGE] },
        ("discovery.k8s.io", "v1", "endpointslices") => {
            const { &[NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE] }
        }
        ("resource.k8s.io", "v1", "resourceclaims") => const { &[NAME, text("State"), AGE] },
        ("resource.k8s.io", "v1", "resourceslices") => {
            const { &[NAME, text("Node"), text("Driver"), text("Pool"), AGE] }
        }
        ("flowcontrol.apiserver.k8s.io", "v1", "flowschemas") => {
            const {
                &[
                    NAME,
                    text("PriorityLevel"),
                    text("MatchingPrecedence"),
                    text("DistinguisherMethod"),
                    AGE,
                    text("MissingPL"),
                ]
            }
        }
        ("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations") => {
            const {
                &[
                    NAME,
                    text("Type"),
                    text("NominalConcurrencyShares"),
                    text("Queues"),
                    text("HandSize"),
                    text("QueueLengthLimit"),
                    AGE,
                ]
            }
        }
        _ => return None,
    })
}
