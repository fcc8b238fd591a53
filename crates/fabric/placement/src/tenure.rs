//! Whose a namespace is on edges that several workspaces share, and what only trusted workspaces may place. Pure.
//!
//! A namespace of an edge belongs to one workspace: the one whose claim to it is the oldest. When a claim began is recorded for each
//! placement, by the center and not by the tenant. Three rules keep the order stable. A claim that loses somewhere ranks behind all that do
//! not, so waiting gives nobody a better place. A placement that is led to further edges ranks there behind all that were there before. And
//! the edges that it reached before keep their owner while it is recorded anew.

use std::collections::BTreeMap;

use kinds::ObjectKey;
use schema::selector::LabelSelector;
use serde::{Deserialize, Serialize};

use crate::{
    facts::{self, Labels, Selectors},
    workspace::NAMESPACES,
};

/// The record of a placement has at most so many namespaces. The others are ranked as if they were new.
pub const MOST: usize = 10_000;

/// Namespaces that every server has. What is in them concerns the whole edge.
const RESERVED: [&str; 2] = ["default", "selvedge-edge"];
const RESERVED_PREFIX: &str = "kube-";

/// What is recorded of the namespaces that a placement claims.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tenure {
    /// Of the placement.
    pub uid: String,
    /// Its `spec.locationSelectors` when this was recorded, as JSON.
    pub reach: String,
    pub namespaces: BTreeMap<String, Claim>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The center's revision when it was recorded.
    pub since: u64,
    /// On some edge the namespace belongs to another workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// The lower one is the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u8, u64);

impl Rank {
    /// What the owner of the edge itself asks for.
    pub const FIRST: Self = Self(0, 0);
    /// Nothing is recorded yet.
    const UNKNOWN: Self = Self(2, 0);
}

impl Tenure {
    /// How the claim to a namespace ranks. `fresh`: the edge is one that the placement did not reach when this was recorded.
    pub fn rank(of: Option<&Self>, namespace: &str, fresh: bool) -> Rank {
        match of.and_then(|tenure| tenure.namespaces.get(namespace)).filter(|_| !fresh) {
            Some(Claim { since, lost }) => Rank(u8::from(*lost), *since),
            None => Rank::UNKNOWN,
        }
    }

    /// The selectors that `reach` is the text of.
    pub fn selectors(&self) -> Selectors {
        let read: Vec<serde_json::Value> = serde_json::from_str(&self.reach).unwrap_or_default();
        read.iter().map(|one| LabelSelector::from_value(one).unwrap_or_else(|_| LabelSelector::nothing())).collect()
    }

    /// Whether a Location with these labels was reached when this was recorded.
    pub fn reached(selectors: &Selectors, labels: &Labels) -> bool {
        selectors.iter().any(|selector| facts::matches(selector, labels))
    }

    /// What is to be recorded: each namespace that is claimed now, and whether the claim is lost on some edge.
    pub fn next(
        before: Option<&Self>,
        uid: &str,
        reach: &str,
        claimed: impl Iterator<Item = (String, bool)>,
        now: u64,
    ) -> Self {
        let before = before.filter(|before| before.uid == uid);
        let same_reach = before.is_some_and(|before| before.reach == reach);
        let known = |namespace: &str| before.and_then(|before| before.namespaces.get(namespace)).copied();
        let claim = |(namespace, lost): (String, bool)| {
            let since = match known(&namespace) {
                Some(claim) if lost => claim.since,
                Some(Claim { since, lost: false }) if same_reach => since,
                _ => now,
            };
            (namespace, Claim { since, lost })
        };
        Self { uid: uid.to_owned(), reach: reach.to_owned(), namespaces: claimed.take(MOST).map(claim).collect() }
    }
}

/// The namespace that an object is in, or that it is; empty for other objects without a namespace.
pub fn space_of<'a>(key: &ObjectKey<'a>) -> &'a str {
    if key.collection == NAMESPACES { key.name } else { key.namespace }
}

pub fn is_reserved(namespace: &str) -> bool {
    RESERVED.contains(&namespace) || namespace.starts_with(RESERVED_PREFIX)
}

/// Whether an object concerns the whole edge, so that only trusted workspaces may place it: everything without a namespace but
/// Namespaces, and what is in a reserved namespace.
pub fn needs_trust(key: &ObjectKey<'_>) -> bool {
    match space_of(key) {
        "" => true,
        namespace => is_reserved(namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::map;
    use serde_json::json;

    const HERE: &str = r#"[{"matchLabels":{"env":"prod"}}]"#;

    fn next(before: Option<&Tenure>, reach: &str, claimed: &[(&str, bool)], now: u64) -> Tenure {
        Tenure::next(before, "u", reach, claimed.iter().map(|(name, lost)| ((*name).to_owned(), *lost)), now)
    }

    #[test]
    fn claims_are_dated_once() {
        let first = next(None, HERE, &[("a", false), ("b", true)], 10);
        assert_eq!(first.namespaces["a"], Claim { since: 10, lost: false });
        let again = next(Some(&first), HERE, &[("a", false), ("b", true), ("c", false)], 20);
        let since = |tenure: &Tenure, name: &str| tenure.namespaces[name].since;
        assert_eq!((since(&again, "a"), since(&again, "b"), since(&again, "c")), (10, 10, 20));
        // A claim that is no longer lost begins when the namespace became free.
        assert_eq!(since(&next(Some(&first), HERE, &[("b", false)], 30), "b"), 30);
        // Other edges are a new claim.
        assert_eq!(since(&next(Some(&first), "[]", &[("a", false)], 40), "a"), 40);
        // Another placement of the same name has no past.
        let other = Tenure { uid: "v".into(), ..first.clone() };
        assert_eq!(since(&next(Some(&other), HERE, &[("a", false)], 50), "a"), 50);
    }

    #[test]
    fn waiting_gives_no_better_place() {
        let old_but_lost = next(None, HERE, &[("a", true)], 1);
        let young = next(None, HERE, &[("a", false)], 99);
        let rank = |tenure: Option<&Tenure>, fresh| Tenure::rank(tenure, "a", fresh);
        assert!(rank(Some(&young), false) < rank(Some(&old_but_lost), false));
        assert!(rank(Some(&old_but_lost), false) < rank(None, false));
        assert_eq!(rank(Some(&young), true), rank(None, false), "an edge that it is led to now");
        assert!(Rank::FIRST < rank(Some(&young), false));
        let selectors = young.selectors();
        assert!(Tenure::reached(&selectors, &map(&json!({"env": "prod"}))));
        assert!(!Tenure::reached(&selectors, &map(&json!({"env": "test"}))));
        assert!(Tenure { reach: "{".into(), ..Tenure::default() }.selectors().is_empty());
    }

    #[test]
    fn what_concerns_the_whole_edge() {
        for (key, needs) in [
            ("core/namespaces//shop", false),
            ("core/secrets/shop/pw", false),
            ("rbac.authorization.k8s.io/rolebindings/shop/a", false),
            ("core/namespaces//kube-flannel", true),
            ("core/namespaces//default", true),
            ("core/secrets/default/pw", true),
            ("core/secrets/kube-flannel/pw", true),
            ("rbac.authorization.k8s.io/clusterrolebindings//a", true),
            ("admissionregistration.k8s.io/validatingwebhookconfigurations//a", true),
            ("apiextensions.k8s.io/customresourcedefinitions//a.b", true),
            ("core/persistentvolumes//a", true),
            ("storage.k8s.io/storageclasses//a", true),
            ("scheduling.k8s.io/priorityclasses//a", true),
            ("example.com/gadgets//a", true),
        ] {
            assert_eq!(needs_trust(&ObjectKey::parse(key).unwrap()), needs, "{key}");
        }
    }
}
