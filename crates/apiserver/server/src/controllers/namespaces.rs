//! Namespaces: what every one of them holds from the start, and how one is taken down.

use std::{sync::Arc, time::Duration};

use cache::object::Object;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use super::Controllers;
use crate::{Server, aggregation::namespaces::Elsewhere, internal::Internal, kinds::Kind, verbs::delete::Options};

const RETRY: Duration = Duration::from_secs(2);

pub async fn run(controllers: Arc<Controllers>, server: Arc<Server>) {
    loop {
        let key = controllers.namespaces.pop().await;
        let Some(object) = server.cache.get("core/namespaces", &key) else {
            controllers.namespaces.wait_inside(&key, false);
            continue;
        };
        let hand = Internal::new(&server, object.cluster(), "kube-controller-manager");
        let done = if server.workspaces.is_leaving(object.cluster()) {
            // It goes with everything else there.
            continue;
        } else if object.value()["metadata"]["deletionTimestamp"].is_null() {
            furnish(&hand, &object).await
        } else {
            controllers.namespaces.wait_inside(&key, true);
            let (again, name) = (controllers.clone(), key.clone());
            let tell = move || again.namespaces.push(&name);
            // Nothing while remote API servers are still asked: then the namespace is emptied here, but stays.
            let elsewhere = server.aggregation.cleanups.empty(&server, object.cluster(), object.name(), tell);
            take_down(&hand, &object, elsewhere).await
        };
        if let Err(status) = done {
            tracing::warn!(namespace = object.name(), error = %status, "a namespace could not be brought to order; trying again");
            let again = controllers.clone();
            controllers.namespaces.again(key, move |key| again.namespaces.push(key), RETRY);
        }
    }
}

/// The default ServiceAccount and the CA by which pods know this server.
async fn furnish(hand: &Internal, namespace: &Object) -> Result<()> {
    let accounts = hand.kind("", "v1", "serviceaccounts")?;
    hand.ensure(&accounts, namespace.name(), json!({"metadata": {"name": "default"}})).await?;
    let maps = hand.kind("", "v1", "configmaps")?;
    hand.ensure(&maps, namespace.name(), root_ca(hand.server())).await?;
    let ca = hand.server().identity.ca_pem();
    if let Some(have) = hand.get(&maps, namespace.name(), "kube-root-ca.crt")
        && have.value()["data"]["ca.crt"] != ca
    {
        hand.change(&maps, namespace.name(), "kube-root-ca.crt", "", |value| value["data"]["ca.crt"] = ca.into())
            .await?;
    }
    Ok(())
}

/// The ConfigMap by which pods know this server.
pub fn root_ca(server: &Server) -> Value {
    json!({"metadata": {"name": "kube-root-ca.crt", "annotations": {
        "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
        endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
        distributions of Kubernetes clusters."}}, "data": {"ca.crt": server.identity.ca_pem()}})
}

/// Where Pods lie. They go first: what protects or configures them, such as a NetworkPolicy, stays until they have
/// ended.
const PODS: &str = "core/pods";

/// Empties a namespace, says what is left, and lets it go when nothing is.
async fn take_down(hand: &Internal, namespace: &Object, elsewhere: Option<Elsewhere>) -> Result<()> {
    let cluster = namespace.cluster();
    let prefix = format!("{cluster}/{}/", namespace.name());
    let mut kinds: Vec<Arc<Kind>> = Vec::new();
    for kind in hand.server().kinds.namespaced(cluster) {
        if !kinds.iter().any(|known| known.collection == kind.collection) {
            kinds.push(kind);
        }
    }
    let (pods, others): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|kind| &*kind.collection == PODS);
    let mut left = Left::default();
    left.empty(hand, &pods, &prefix).await;
    if left.is_nothing() {
        left.empty(hand, &others, &prefix).await;
    }
    let Some(elsewhere) = elsewhere else { return left.error.map_or(Ok(()), Err) };
    let left = left.and(elsewhere);
    let namespaces = hand.kind("", "v1", "namespaces")?;
    let report = left.conditions();
    hand.change(&namespaces, "", namespace.name(), "status", |value| merge_conditions(value, &report)).await?;
    if left.is_nothing() {
        let release = |value: &mut Value| {
            if let Some(list) = value["spec"]["finalizers"].as_array_mut() {
                list.retain(|f| f != "kubernetes");
            }
        };
        hand.change(&namespaces, "", namespace.name(), "finalize", release).await?;
    }
    left.error.map_or(Ok(()), Err)
}

/// What is still in a namespace that should be empty.
#[derive(Default)]
struct Left {
    /// `configmaps. has 1 resource instances`
    resources: Vec<(String, usize)>,
    finalizers: std::collections::BTreeMap<String, usize>,
    /// Group versions of remote servers that cannot be discovered.
    stale: Vec<String>,
    /// Why something could not be deleted, once for each kind.
    failures: Vec<String>,
    /// The last of those that happened here.
    error: Option<Status>,
}

impl Left {
    /// With what remote API servers hold.
    fn and(mut self, elsewhere: Elsewhere) -> Self {
        self.resources.extend(elsewhere.left);
        for (name, count) in elsewhere.finalizers {
            *self.finalizers.entry(name).or_default() += count;
        }
        self.stale.extend(elsewhere.stale);
        self.failures.extend(elsewhere.failures);
        self
    }

    /// Deletes all objects of these kinds, and counts what stays all the same. One kind that fails keeps no other.
    async fn empty(&mut self, hand: &Internal, kinds: &[Arc<Kind>], prefix: &str) {
        for kind in kinds {
            let snapshot = hand.server().cache.snapshot(&kind.collection);
            for object in snapshot.items.range(prefix, "") {
                if let Err(status) = hand.delete(kind, object, &Options::background()).await {
                    self.failures.push(status.message.clone());
                    self.error = Some(status);
                    break;
                }
            }
        }
        for kind in kinds.iter().filter(|kind| kind.resource.can("list")) {
            let snapshot = hand.server().cache.snapshot(&kind.collection);
            let mut count = 0;
            for object in snapshot.items.range(prefix, "") {
                count += 1;
                for finalizer in object.value()["metadata"]["finalizers"].as_array().into_iter().flatten() {
                    *self.finalizers.entry(finalizer.as_str().unwrap_or_default().to_owned()).or_default() += 1;
                }
            }
            if count > 0 {
                self.resources.push((format!("{}.{}", kind.plural(), kind.group()), count));
            }
        }
        self.resources.sort();
    }

    fn is_nothing(&self) -> bool {
        self.resources.is_empty() && self.stale.is_empty() && self.failures.is_empty()
    }

    /// Upstream's five conditions, in its order.
    fn conditions(&self) -> Vec<Value> {
        let condition = |kind: &str, bad: bool, reasons: (&str, &str), message: String| {
            let reason = if bad { reasons.1 } else { reasons.0 };
            json!({"type": kind, "status": if bad { "True" } else { "False" }, "reason": reason, "message": message,
                "lastTransitionTime": clock::now()})
        };
        let content =
            self.resources.iter().map(|(name, n)| format!("{name} has {n} resource instances")).collect::<Vec<_>>();
        let held =
            self.finalizers.iter().map(|(name, n)| format!("{name} in {n} resource instances")).collect::<Vec<_>>();
        let content = match content.is_empty() {
            true => "All content successfully removed".to_owned(),
            false => format!("Some resources are remaining: {}", content.join(", ")),
        };
        let held_text = match held.is_empty() {
            true => "All content-preserving finalizers finished".to_owned(),
            false => format!("Some content in the namespace has finalizers remaining: {}", held.join(", ")),
        };
        let stale = |group_version: &String| format!("{group_version}: stale GroupVersion discovery: {group_version}");
        let discovered = match self.stale.len() {
            0 => "All resources successfully discovered".to_owned(),
            n => {
                let all = self.stale.iter().map(stale).collect::<Vec<_>>().join(", ");
                format!(
                    "Discovery failed for some groups, {n} failing: unable to retrieve the complete list of server APIs: {all}"
                )
            }
        };
        let deleted = match self.failures.len() {
            0 => "All content successfully deleted, may be waiting on finalization".to_owned(),
            n => {
                let mut why: Vec<&str> = self.failures.iter().map(String::as_str).collect();
                why.sort_unstable();
                format!("Failed to delete all resource types, {n} remaining: {}", why.join(", "))
            }
        };
        vec![
            condition(
                "NamespaceDeletionDiscoveryFailure",
                !self.stale.is_empty(),
                ("ResourcesDiscovered", "DiscoveryFailed"),
                discovered,
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                ("ParsedGroupVersions", ""),
                "All legacy kube types successfully parsed".into(),
            ),
            condition(
                "NamespaceDeletionContentFailure",
                !self.failures.is_empty(),
                ("ContentDeleted", "ContentDeletionFailed"),
                deleted,
            ),
            condition(
                "NamespaceContentRemaining",
                !self.resources.is_empty(),
                ("ContentRemoved", "SomeResourcesRemain"),
                content,
            ),
            condition(
                "NamespaceFinalizersRemaining",
                !held.is_empty(),
                ("ContentHasNoFinalizers", "SomeFinalizersRemain"),
                held_text,
            ),
        ]
    }
}

/// Conditions that did not change keep their time, and those of others stay as they are.
fn merge_conditions(namespace: &mut Value, report: &[Value]) {
    let mut conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for new in report {
        match conditions.iter_mut().find(|old| old["type"] == new["type"]) {
            None => conditions.push(new.clone()),
            Some(old) => {
                let since = Some(&old["lastTransitionTime"]).filter(|_| old["status"] == new["status"]).cloned();
                *old = new.clone();
                if let Some(since) = since {
                    old["lastTransitionTime"] = since;
                }
            }
        }
    }
    namespace["status"]["conditions"] = conditions.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told() {
        let left = Left {
            resources: vec![("pods.".into(), 2)],
            finalizers: [("example.com/hold".to_owned(), 1)].into(),
            failures: vec![Status::internal("disk").message],
            ..Left::default()
        };
        assert!(!left.is_nothing());
        let told: Vec<_> = left.conditions().iter().map(|c| format!("{}: {}", c["reason"], c["message"])).collect();
        assert_eq!(
            told[2..],
            [
                "\"ContentDeletionFailed\": \"Failed to delete all resource types, 1 remaining: Internal error occurred: disk\"",
                "\"SomeResourcesRemain\": \"Some resources are remaining: pods. has 2 resource instances\"",
                "\"SomeFinalizersRemain\": \"Some content in the namespace has finalizers remaining: example.com/hold in 1 \
                 resource instances\"",
            ]
        );
    }

    #[test]
    fn conditions_of_others_and_times_stay() {
        let mut namespace = json!({"status": {"conditions": [
            {"type": "Theirs", "status": "True"},
            {"type": "NamespaceContentRemaining", "status": "False", "lastTransitionTime": "then"},
        ]}});
        merge_conditions(&mut namespace, &Left::default().conditions());
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        assert_eq!((conditions.len(), &conditions[0]["type"]), (6, &json!("Theirs")));
        assert_eq!(conditions[1]["lastTransitionTime"], "then");
    }
}
