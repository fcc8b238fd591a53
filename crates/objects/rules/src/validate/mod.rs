//! The value rules of built-in kinds: what is refused, and with which words.
//!
//! [`create`] and [`update`] run everything upstream runs, in its order, with its repetitions: the rules of the kind and
//! those that hold for every object. Custom resources use [`metadata_create`] and [`metadata_update`], and have their
//! own rules in [`crate::crd`]. Objects come decoded and defaulted; whatever else they are, nothing here panics.

mod admission;
mod amount;
mod apps;
mod autoscaling;
mod batch;
mod claims;
mod cluster;
mod config;
mod cron;
mod devices;
mod expressions;
mod flowcontrol;
mod internal;
mod job_status;
mod lines;
mod meta;
mod networking;
mod node;
mod pod;
mod quota;
mod rbac;
mod requests;
mod required;
mod service;
mod status;
mod storage;
#[cfg(test)]
mod tests;
mod typecheck;

use serde_json::Value;

pub use requests::{binding, scale, token_request};
pub use required::required;
pub use typecheck::{Checked, Warning, type_warnings};

use node::{Ctx, Node};
use schema::catalogue::Resource;
use schema::field::FieldErrors;
use schema::names::NameRule;

/// What is checked of a kind beyond what holds for all.
struct Rules {
    name: NameRule,
    /// Everything but the metadata.
    create: fn(Node<'_>),
    /// What the kind says about an update, after the check of the metadata.
    update: fn(Node<'_>, Node<'_>),
    /// The same for `/status`.
    status: fn(Node<'_>, Node<'_>),
    /// Whether an update is checked as a creation is, and when.
    again: Again,
    /// A few kinds leave the metadata to what is checked for all.
    meta: bool,
    meta_update: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Again {
    Never,
    First,
    Last,
}

impl Rules {
    const fn new(create: fn(Node<'_>)) -> Self {
        Self {
            name: NameRule::Subdomain,
            create,
            update: |_, _| {},
            status: |_, _| {},
            again: Again::Never,
            meta: true,
            meta_update: true,
        }
    }

    /// What an update may not do, and then all that holds for a creation.
    const fn again(mut self, update: fn(Node<'_>, Node<'_>)) -> Self {
        self.update = update;
        self.again = Again::Last;
        self
    }

    /// All that holds for a creation comes before what an update may not do.
    const fn before(mut self, update: fn(Node<'_>, Node<'_>)) -> Self {
        self.update = update;
        self.again = Again::First;
        self
    }

    const fn updated(mut self, update: fn(Node<'_>, Node<'_>)) -> Self {
        self.update = update;
        self
    }

    const fn without_meta(mut self) -> Self {
        self.meta = false;
        self.meta_update = false;
        self
    }

    const fn without_meta_update(mut self) -> Self {
        self.meta_update = false;
        self
    }

    const fn status(mut self, status: fn(Node<'_>, Node<'_>)) -> Self {
        self.status = status;
        self
    }

    const fn named(mut self, rule: NameRule) -> Self {
        self.name = rule;
        self
    }
}

fn rules(group: &str, kind: &str) -> Rules {
    match (group, kind) {
        ("", "ConfigMap") => Rules::new(config::config_map).again(config::config_map_update),
        ("", "Secret") => Rules::new(config::secret).again(config::secret_update),
        ("", "ServiceAccount") => Rules::new(|_| {}).again(|_, _| {}),
        ("", "Namespace") => Rules::new(config::namespace).named(NameRule::Label).status(config::namespace_status),
        ("", "Pod") => Rules::new(pod::pod).updated(pod::update::pod).status(pod::status::update),
        ("", "PodTemplate") => {
            Rules::new(|root| pod::template(root.get("template"))).updated(|new, _| pod::template(new.get("template")))
        }
        ("", "ReplicationController") => Rules::new(apps::replication_controller)
            .updated(|new, _| apps::replication_controller(new))
            .status(apps::replica_set_status),
        ("", "PersistentVolumeClaim") => {
            Rules::new(claims::claim).before(claims::claim_update).status(claims::claim_status)
        }
        ("", "PersistentVolume") => {
            Rules::new(claims::persistent_volume).before(claims::persistent_volume_update).without_meta_update()
        }
        ("", "Service") => service::rules(),
        ("", "Endpoints") => Rules::new(service::endpoints).again(|_, _| {}),
        ("discovery.k8s.io", "EndpointSlice") => Rules::new(service::endpoint_slice)
            .before(|new, old| new.get("addressType").immutable(old.get("addressType")))
            .without_meta_update(),
        ("", "LimitRange") => Rules::new(quota::limit_range).again(|_, _| {}).without_meta_update(),
        ("", "ResourceQuota") => {
            Rules::new(quota::resource_quota).updated(quota::resource_quota_update).status(quota::resource_quota_status)
        }
        ("", "Node") => Rules::new(cluster::node).updated(cluster::node_update).status(cluster::node_update),
        ("" | "events.k8s.io", "Event") => cluster::event_rules(group),
        ("scheduling.k8s.io", "PriorityClass") => {
            Rules::new(cluster::priority_class).updated(cluster::priority_class_update)
        }
        ("node.k8s.io", "RuntimeClass") => Rules::new(cluster::runtime_class).updated(cluster::runtime_class_update),
        ("coordination.k8s.io", "Lease") => Rules::new(cluster::lease).updated(|new, _| cluster::lease(new)),
        ("certificates.k8s.io", "CertificateSigningRequest") => Rules::new(cluster::signing_request)
            .before(|new, old| cluster::signing_request_update(new, old, ""))
            .status(|new, old| cluster::signing_request_update(new, old, "status"))
            .named(NameRule::PathSegment),
        ("apiregistration.k8s.io", "APIService") => {
            Rules::new(cluster::api_service).again(|_, _| {}).named(NameRule::PathSegment)
        }
        ("admissionregistration.k8s.io", kind) => admission::rules(kind),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler(),
        ("policy", "PodDisruptionBudget") => autoscaling::disruption_budget(),
        ("networking.k8s.io", kind) => networking::rules(kind),
        ("apps", kind) => apps::rules(kind),
        ("batch", kind) => batch::rules(kind),
        ("rbac.authorization.k8s.io", kind) => rbac::rules(kind),
        ("storage.k8s.io", kind) => storage::rules(kind),
        ("flowcontrol.apiserver.k8s.io", kind) => flowcontrol::rules(kind),
        ("resource.k8s.io", kind) => devices::rules(kind),
        _ => Rules::new(|_| {}),
    }
}

/// What is wrong with the addresses and families of a service, which is asked before any are given out.
pub fn service_addresses(spec: &Value) -> FieldErrors {
    let ctx = Ctx::default();
    service::cluster_ips(ctx.root(spec));
    let mut errors = ctx.take();
    errors.iter_mut().for_each(|error| error.path.insert_str(0, "spec."));
    errors
}

/// Runs rules on a value made up for them, as if it stood at the given place.
fn at(place: Node<'_>, value: &Value, rules: impl FnOnce(Node<'_>)) -> FieldErrors {
    let ctx = Ctx::default();
    rules(ctx.root(value));
    let mut errors = ctx.take();
    if !errors.is_empty() {
        let path = place.path();
        for error in &mut errors {
            let dot = if error.path.is_empty() || error.path.starts_with('[') { "" } else { "." };
            error.path = format!("{path}{dot}{}", error.path);
        }
    }
    errors
}

/// Metadata of a new object, by the rule for its kind's names.
pub fn metadata_create(resource: &Resource, obj: &Value) -> FieldErrors {
    let ctx = Ctx::default();
    let rule = name_rule(resource);
    meta::object_meta(ctx.root(obj).get("metadata"), resource.namespaced, &meta::by(rule));
    ctx.take()
}

/// Metadata of a changed object against the old one.
pub fn metadata_update(new: &Value, old: &Value) -> FieldErrors {
    let ctx = Ctx::default();
    meta::object_meta_update(ctx.root(new).get("metadata"), ctx.root(old).get("metadata"));
    ctx.take()
}

/// How objects of this resource may be named.
pub fn name_rule(resource: &Resource) -> NameRule {
    rules(&resource.group, &resource.kind).name
}

/// Everything that is wrong with a new object of a built-in kind.
pub fn create(resource: &Resource, obj: &Value) -> FieldErrors {
    let ctx = Ctx::default();
    let root = ctx.root(obj);
    let rules = rules(&resource.group, &resource.kind);
    if rules.meta {
        meta::built_in(root.get("metadata"), resource.namespaced, &meta::by(rules.name));
    }
    (rules.create)(root);
    if root.errors() == 0 {
        meta::object_meta(root.get("metadata"), resource.namespaced, &meta::by(NameRule::PathSegment));
    }
    ctx.take()
}

/// Everything that is wrong with a change, of the object itself (`subresource` is empty) or through a subresource.
pub fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value) -> FieldErrors {
    let ctx = Ctx::default();
    let (root, old) = (ctx.root(new), ctx.root(old));
    let rules = rules(&resource.group, &resource.kind);
    let (metadata, old_metadata) = (root.get("metadata"), old.get("metadata"));
    meta::object_meta(metadata, resource.namespaced, &meta::by(NameRule::PathSegment));
    meta::object_meta_update(metadata, old_metadata);
    if rules.meta_update || subresource == "status" {
        meta::built_in_update(metadata, old_metadata);
    }
    match subresource {
        "status" => (rules.status)(root, old),
        "approval" => cluster::signing_request_update(root, old, "approval"),
        "finalize" if &*resource.kind == "Namespace" => config::namespace_finalize(root),
        "ephemeralcontainers" => pod::update::ephemeral_containers(root, old),
        "resize" => pod::resize::pod(root, old),
        _ => {
            let again = || {
                if rules.meta {
                    meta::built_in(metadata, resource.namespaced, &meta::by(rules.name));
                }
                (rules.create)(root);
            };
            if rules.again == Again::First {
                again();
            }
            (rules.update)(root, old);
            if rules.again == Again::Last {
                again();
            }
        }
    }
    ctx.take()
}
