//! What is told of a StatefulSet's Pods and claims, in upstream's words. Pure.

use k8s_openapi::{
    Metadata,
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use controllers::note::Note;

fn name(object: &impl Metadata<Ty = ObjectMeta>) -> &str {
    object.metadata().name.as_deref().unwrap_or_default()
}

/// That a Pod was made or deleted, or why not. `verb` is `Create` or `Delete`.
pub fn pod(set: &StatefulSet, pod: &Pod, verb: &str, error: Option<&str>) -> Note {
    let about = format!("{verb} Pod {} in StatefulSet {}", name(pod), name(set));
    let (done, failed) = match verb {
        "Delete" => ("SuccessfulDelete", "FailedDelete"),
        _ => ("SuccessfulCreate", "FailedCreate"),
    };
    match error {
        None => Note::normal(done, format!("{about} successful")),
        Some(error) => Note::warning(failed, format!("{about} failed error: {error}")),
    }
}

/// That a claim was made, or why not. Its Pod's name is the end of its own.
pub fn claim(set: &StatefulSet, claim: &PersistentVolumeClaim, error: Option<&str>) -> Note {
    let (claim, set) = (name(claim), name(set));
    let templates = claim.match_indices(set).map(|(at, _)| &claim[at..]);
    let pod = templates.into_iter().last().unwrap_or_default();
    match error {
        None => {
            Note::normal("SuccessfulCreate", format!("Create Claim {claim} Pod {pod} in StatefulSet {set} success"))
        }
        Some(error) => Note::warning(
            "FailedCreate",
            format!("Create Claim {claim} for Pod {pod} in StatefulSet {set} failed error: {error}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_upstreams() {
        let named = |name: &str| ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
        let set = StatefulSet { metadata: named("db"), ..StatefulSet::default() };
        let one = Pod { metadata: named("db-0"), ..Pod::default() };
        let data = PersistentVolumeClaim { metadata: named("db-data-db-0"), ..PersistentVolumeClaim::default() };
        for (note, expected) in [
            (
                pod(&set, &one, "Create", None),
                Note::normal("SuccessfulCreate", "Create Pod db-0 in StatefulSet db successful"),
            ),
            (
                pod(&set, &one, "Delete", None),
                Note::normal("SuccessfulDelete", "Delete Pod db-0 in StatefulSet db successful"),
            ),
            (
                pod(&set, &one, "Create", Some("full")),
                Note::warning("FailedCreate", "Create Pod db-0 in StatefulSet db failed error: full"),
            ),
            (
                claim(&set, &data, None),
                Note::normal("SuccessfulCreate", "Create Claim db-data-db-0 Pod db-0 in StatefulSet db success"),
            ),
            (
                claim(&set, &data, Some("full")),
                Note::warning(
                    "FailedCreate",
                    "Create Claim db-data-db-0 for Pod db-0 in StatefulSet db failed error: full",
                ),
            ),
        ] {
            assert_eq!(note, expected);
        }
    }
}
