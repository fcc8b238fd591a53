//! Owners of objects: references with `controller: true`, adoption of objects without one, and release of objects that
//! are not selected any more.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
    core::{Selector, SelectorExt},
};
use serde_json::json;

use crate::{
    cache::{Change, Key, Kind},
    error::{Error, code},
};

pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Where the controller of an object is, if it is of this kind.
pub fn controller_key<O: Kind>(meta: &ObjectMeta) -> Option<Key> {
    let owner = controller_of(meta)?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let is_it = owner.kind == O::kind(&()) && group == O::group(&());
    is_it.then(|| Key::new(meta.namespace.as_deref().unwrap_or_default(), &owner.name))
}

/// The reference that makes `owner` the controller of an object.
pub fn reference(owner: &impl Resource<DynamicType = ()>) -> Option<OwnerReference> {
    let mut reference = owner.controller_owner_ref(&())?;
    reference.block_owner_deletion = Some(true);
    Some(reference)
}

pub fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// The controllers of this kind of an object, before and after a change.
pub fn owners_of<O: Kind>(change: &Change<impl Kind>) -> impl Iterator<Item = Key> {
    let mut keys: Vec<Key> = change.states().filter_map(|object| controller_key::<O>(object.meta())).collect();
    keys.dedup();
    keys.into_iter()
}

/// An object without a controller, if it can be adopted since this change.
pub fn new_orphan<K: Kind>(change: &Change<K>) -> Option<&Arc<K>> {
    let new = change.new.as_ref()?;
    if controller_of(new.meta()).is_some() || is_deleting(new.meta()) {
        return None;
    }
    let is_new = change
        .old
        .as_ref()
        .is_none_or(|old| old.meta().labels != new.meta().labels || controller_of(old.meta()).is_some());
    is_new.then_some(new)
}

/// A label selector that is parsed once. An empty one selects nothing here: upstream's workload controllers treat it as
/// an error of the user.
pub struct Selects(Option<Selector>);

impl Selects {
    pub fn new(selector: Option<&LabelSelector>) -> Result<Self, Error> {
        let Some(selector) = selector else { return Ok(Self(None)) };
        let parsed = Selector::try_from(selector.clone());
        let parsed = parsed.map_err(|error| Error::Unusable(format!("the label selector cannot be used: {error}")))?;
        Ok(Self((!parsed.selects_all()).then_some(parsed)))
    }

    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.0.as_ref().is_some_and(|selector| selector.matches(labels.unwrap_or(&NONE)))
    }

    pub fn selects(&self, object: &impl Resource) -> bool {
        self.matches(object.meta().labels.as_ref())
    }
}

/// The relation of an object to a possible owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    Ours,
    Adopt,
    Release,
    Foreign,
}

pub fn claim(owner: &ObjectMeta, selects: &Selects, object: &ObjectMeta) -> Claim {
    let matches = selects.matches(object.labels.as_ref());
    match controller_of(object) {
        Some(reference) if Some(&reference.uid) != owner.uid.as_ref() => Claim::Foreign,
        Some(_) if matches => Claim::Ours,
        // An owner that goes lets its dependents go by the rules of deletion, not one by one.
        Some(_) if is_deleting(owner) => Claim::Foreign,
        Some(_) => Claim::Release,
        None if matches && !is_deleting(owner) && !is_deleting(object) => Claim::Adopt,
        None => Claim::Foreign,
    }
}

/// The owner's of all `objects`, after adopting and releasing. The owner is read once more from `owners` before anything
/// is adopted: an owner that was deleted and made again must not take objects of the other one.
pub async fn claim_all<O, K>(
    owners: &Api<O>,
    owner: &O,
    selects: &Selects,
    dependents: &Api<K>,
    objects: Vec<Arc<K>>,
) -> Result<Vec<Arc<K>>, Error>
where
    O: Kind,
    K: Kind,
{
    let mut ours = Vec::new();
    let mut may_adopt = None;
    for object in objects {
        match claim(owner.meta(), selects, object.meta()) {
            Claim::Ours => ours.push(object),
            Claim::Foreign => {}
            Claim::Adopt => {
                if may_adopt.is_none() {
                    let name = owner.meta().name.as_deref().unwrap_or_default();
                    let now = owners.get_opt(name).await?;
                    may_adopt =
                        Some(now.is_some_and(|now| now.meta().uid == owner.meta().uid && !is_deleting(now.meta())));
                }
                if may_adopt == Some(true) {
                    let Some(reference) = reference(owner) else { continue };
                    let change = json!({"metadata": {"uid": object.meta().uid, "ownerReferences": [reference]}});
                    ours.extend(change_owner(dependents, &*object, change).await?.map(Arc::new));
                }
            }
            Claim::Release => {
                let gone = json!({"$patch": "delete", "uid": owner.meta().uid});
                let change = json!({"metadata": {"uid": object.meta().uid, "ownerReferences": [gone]}});
                change_owner(dependents, &*object, change).await?;
            }
        }
    }
    Ok(ours)
}

/// None if the object is gone, or is another by now.
async fn change_owner<K: Kind>(dependents: &Api<K>, object: &K, change: serde_json::Value) -> Result<Option<K>, Error> {
    let name = object.meta().name.as_deref().unwrap_or_default();
    match dependents.patch(name, &PatchParams::default(), &Patch::Strategic(change)).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if matches!(code(&error), 404 | 409 | 422) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::apps::v1::ReplicaSet, apimachinery::pkg::apis::meta::v1::Time};

    use super::*;

    fn meta(uid: &str, label: &str, owner: Option<&str>, deleting: bool) -> ObjectMeta {
        ObjectMeta {
            uid: Some(uid.into()),
            namespace: Some("ns".into()),
            labels: Some([("app".to_owned(), label.to_owned())].into()),
            owner_references: owner.map(|uid| {
                vec![OwnerReference {
                    api_version: "apps/v1".into(),
                    kind: "ReplicaSet".into(),
                    name: "set".into(),
                    uid: uid.into(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]
            }),
            deletion_timestamp: deleting.then(|| Time(Default::default())),
            ..ObjectMeta::default()
        }
    }

    fn selects(app: &str) -> Selects {
        let labels = Some([("app".to_owned(), app.to_owned())].into());
        Selects::new(Some(&LabelSelector { match_labels: labels, ..LabelSelector::default() })).unwrap()
    }

    #[test]
    fn who_owns_what() {
        let (owner, going) = (meta("1", "", None, false), meta("1", "", None, true));
        for (owner, label, reference, deleting, expected) in [
            (&owner, "a", Some("1"), false, Claim::Ours),
            (&owner, "a", Some("1"), true, Claim::Ours),
            (&owner, "b", Some("1"), false, Claim::Release),
            (&owner, "a", Some("2"), false, Claim::Foreign),
            (&owner, "a", None, false, Claim::Adopt),
            (&owner, "a", None, true, Claim::Foreign),
            (&owner, "b", None, false, Claim::Foreign),
            (&going, "a", Some("1"), false, Claim::Ours),
            (&going, "b", Some("1"), false, Claim::Foreign),
            (&going, "a", None, false, Claim::Foreign),
        ] {
            let object = meta("x", label, reference, deleting);
            let got = claim(owner, &selects("a"), &object);
            assert_eq!(got, expected, "{label} {reference:?} {deleting} {:?}", owner.deletion_timestamp);
        }
    }

    #[test]
    fn an_empty_selector_selects_nothing() {
        assert!(!Selects::new(Some(&LabelSelector::default())).unwrap().selects(&ReplicaSet::default()));
        assert!(!Selects::new(None).unwrap().selects(&ReplicaSet::default()));
    }

    #[test]
    fn an_owner_is_found_by_its_kind() {
        let meta = meta("x", "a", Some("1"), false);
        assert_eq!(controller_key::<ReplicaSet>(&meta), Some(Key::new("ns", "set")));
        assert_eq!(controller_key::<k8s_openapi::api::apps::v1::Deployment>(&meta), None);
    }
}
