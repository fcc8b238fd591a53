//! What the cluster's answers mean. Pure.

use kinds::ObjectKey;
use serde_json::Value;

/// What came back, whatever it was.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    Done,
    Missing,
    /// Others say otherwise about some fields: who, and which.
    Conflict(String),
    /// It is not the object of the uid that was asked for: that one is gone.
    Another(String),
    /// Some of it cannot be changed, only made anew.
    Immutable(String),
    Refused(String),
    /// It says nothing about the object: the cluster is away, overloaded, or does not know us.
    Away(String),
}

/// Kinds that hold something which deleting would lose: their objects are not made anew for a field that cannot be changed.
const PRECIOUS: [&str; 4] = [
    "core/namespaces",
    "core/persistentvolumes",
    "core/persistentvolumeclaims",
    "apiextensions.k8s.io/customresourcedefinitions",
];

/// How it is said that the object is not the one that was meant, or is gone. Names have no spaces.
const ANOTHER: [&str; 2] = ["uid mismatch", "UID in precondition"];

/// So many conflicting fields are named.
const NAMED: usize = 5;

impl Answer {
    pub fn meaning(&self, key: &ObjectKey<'_>) -> Meaning {
        let said = self.body["message"].as_str().filter(|message| !message.is_empty());
        let message = said.map_or_else(|| format!("the cluster answered {}", self.code), str::to_owned);
        match self.code {
            200..300 => Meaning::Done,
            404 => Meaning::Missing,
            401 => Meaning::Away(format!("the cluster does not take our credentials: {message}")),
            408 | 429 | 502..=504 => Meaning::Away(message),
            409 if self.causes().any(|cause| cause["reason"] == "FieldManagerConflict") => {
                Meaning::Conflict(self.conflicts())
            }
            409 if ANOTHER.iter().any(|said| message.contains(said)) => Meaning::Another(message),
            422 if self.is_immutable() && !PRECIOUS.contains(&key.collection) => Meaning::Immutable(message),
            _ => Meaning::Refused(message),
        }
    }

    fn causes(&self) -> impl Iterator<Item = &Value> {
        self.body["details"]["causes"].as_array().into_iter().flatten()
    }

    /// `kubectl-edit .data.price, …`
    fn conflicts(&self) -> String {
        let said = |cause: &Value| {
            let message = cause["message"].as_str().unwrap_or_default();
            let who = message.split('"').nth(1).unwrap_or(message);
            format!("{who} {}", cause["field"].as_str().unwrap_or_default())
        };
        let mut all: Vec<String> = self.causes().take(NAMED).map(said).collect();
        let more = self.causes().count().saturating_sub(NAMED);
        if more > 0 {
            all.push(format!("and {more} more"));
        }
        all.join(", ")
    }

    fn is_immutable(&self) -> bool {
        let mut causes = self.causes().peekable();
        causes.peek().is_some()
            && causes.all(|cause| cause["message"].as_str().is_some_and(|message| message.contains("immutable")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_meant() {
        let meaning =
            |code: u16, body: Value, key: &str| Answer { code, body }.meaning(&ObjectKey::parse(key).unwrap());
        let map = "core/configmaps/shop/a";
        assert_eq!(meaning(201, json!({}), map), Meaning::Done);
        assert_eq!(meaning(404, json!({}), map), Meaning::Missing);
        assert_eq!(meaning(403, json!({"message": "exceeded quota"}), map), Meaning::Refused("exceeded quota".into()));
        assert_eq!(
            meaning(500, json!({"message": "failed calling webhook"}), map),
            Meaning::Refused("failed calling webhook".into())
        );
        assert!(matches!(meaning(503, json!(null), map), Meaning::Away(_)));
        let conflict = json!({"message": "Apply failed with 1 conflict", "details": {"causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"kubectl-edit\" using v1", "field": ".data.a"}]}});
        assert_eq!(meaning(409, conflict, map), Meaning::Conflict("kubectl-edit .data.a".into()));
        for another in [
            "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid 1, and no existing object was found",
            "Operation cannot be fulfilled on configmaps \"a\": Precondition failed: UID in precondition: 1, UID in object meta: 2",
        ] {
            assert_eq!(meaning(409, json!({"message": another}), map), Meaning::Another(another.into()));
        }
        let modified = "Operation cannot be fulfilled on configmaps \"guide\": the object has been modified";
        assert_eq!(meaning(409, json!({"message": modified}), map), Meaning::Refused(modified.into()));
        let immutable = json!({"message": "Service is invalid", "details": {"causes": [
            {"reason": "FieldValueInvalid", "message": "Invalid value: field is immutable", "field": "spec.selector"}]}});
        assert!(matches!(meaning(422, immutable.clone(), "apps/deployments/shop/a"), Meaning::Immutable(_)));
        assert!(matches!(meaning(422, immutable, "core/persistentvolumeclaims/shop/a"), Meaning::Refused(_)));
        assert!(matches!(meaning(422, json!({"message": "x"}), map), Meaning::Refused(_)));
    }
}
