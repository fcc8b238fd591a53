//! Permission claims: what else an export's provider reaches in the workspaces that bind it. Pure.

use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub group: Box<str>,
    pub resource: Box<str>,
    /// Of the export that the resource comes from; empty for what every workspace has.
    pub identity: Box<str>,
    all: bool,
    /// Namespace and name; empty ones stand for any.
    selectors: Vec<(Box<str>, Box<str>)>,
}

impl Claim {
    pub fn read(value: &Value) -> Self {
        let text = |value: &Value| Box::from(value.as_str().unwrap_or_default());
        let selectors = value["resourceSelector"].as_array().into_iter().flatten();
        Self {
            group: text(&value["group"]),
            resource: text(&value["resource"]),
            identity: text(&value["identityHash"]),
            all: value["all"] == true,
            selectors: selectors.map(|one| (text(&one["namespace"]), text(&one["name"]))).collect(),
        }
    }

    pub fn read_all(list: &Value) -> Vec<Self> {
        list.as_array().into_iter().flatten().map(Self::read).collect()
    }

    pub fn is_about(&self, group: &str, resource: &str, identity: &str) -> bool {
        &*self.group == group && &*self.resource == resource && &*self.identity == identity
    }

    pub fn is_as(&self, other: &Self) -> bool {
        self.is_about(&other.group, &other.resource, &other.identity)
    }

    /// A name that is still to be made is empty: only a claim on every name covers it.
    pub fn covers(&self, namespace: &str, name: &str) -> bool {
        let one = |(wanted_namespace, wanted_name): &(Box<str>, Box<str>)| {
            (wanted_namespace.is_empty() || &**wanted_namespace == namespace)
                && (wanted_name.is_empty() || &**wanted_name == name)
        };
        self.all || self.selectors.iter().any(one)
    }
}

/// What the provider gets: what it asks for and the binder accepts. Without the state, as statuses list it.
pub fn applied(asked: &Value, answered: &Value) -> Vec<Value> {
    let asked = Claim::read_all(asked);
    let accepted = |claim: &&Value| {
        let own = Claim::read(claim);
        claim["state"] == "Accepted" && asked.iter().any(|a| a.is_as(&own))
    };
    let bare = |claim: &Value| {
        let mut claim = claim.clone();
        if let Some(map) = claim.as_object_mut() {
            map.remove("state");
        }
        claim
    };
    answered.as_array().into_iter().flatten().filter(accepted).map(bare).collect()
}

/// What the binder answered that nobody asked for.
pub fn unasked(asked: &Value, answered: &Value) -> Vec<String> {
    let asked = Claim::read_all(asked);
    let answered = Claim::read_all(answered);
    let extra = answered.iter().filter(|claim| !asked.iter().any(|a| a.is_as(claim)));
    extra.map(|claim| schema::status::qualified(&claim.group, &claim.resource)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn coverage() {
        let claim = |value: Value| Claim::read(&value);
        for (value, covered, other) in [
            (json!({"all": true}), vec![("", "a"), ("n", "a"), ("n", "")], vec![]),
            (
                json!({"resourceSelector": [{"namespace": "n"}]}),
                vec![("n", "a"), ("n", "")],
                vec![("m", "a"), ("", "n")],
            ),
            (json!({"resourceSelector": [{"name": "a"}]}), vec![("n", "a"), ("", "a")], vec![("n", "b"), ("n", "")]),
            (
                json!({"resourceSelector": [{"name": "a", "namespace": "n"}, {"name": "b", "namespace": "m"}]}),
                vec![("n", "a"), ("m", "b")],
                vec![("n", "b"), ("m", "a")],
            ),
            (json!({}), vec![], vec![("", ""), ("n", "a")]),
        ] {
            let claim = claim(value.clone());
            assert!(covered.iter().all(|(ns, name)| claim.covers(ns, name)), "{value}");
            assert!(other.iter().all(|(ns, name)| !claim.covers(ns, name)), "{value}");
        }
    }

    #[test]
    fn only_what_is_asked_and_accepted_applies() {
        let asked = json!([{"group": "", "resource": "configmaps", "identityHash": "", "all": true}]);
        let claim = |resource: &str, identity: &str, state: &str| json!({"group": "", "resource": resource, "identityHash": identity, "all": true, "state": state});
        assert_eq!(json!(applied(&asked, &json!([claim("configmaps", "", "Accepted")]))), asked);
        for other in [
            claim("configmaps", "", "Rejected"),
            claim("secrets", "", "Accepted"),
            claim("configmaps", "other", "Accepted"),
        ] {
            assert!(applied(&asked, &json!([other])).is_empty(), "{other}");
        }
        assert_eq!(unasked(&asked, &json!([claim("secrets", "", "Accepted")])), ["secrets"]);
    }
}
