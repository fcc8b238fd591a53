//! What a remote server says of itself in its discovery and OpenAPI documents. Pure.

use bytes::Bytes;
use serde_json::{Value, json};

/// What is known of one group and version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Documents {
    /// The server has told its resources.
    pub is_known: bool,
    /// A list of resources in the form of aggregated discovery. It is kept as text, which takes least memory.
    pub resources: Bytes,
    /// Where the OpenAPI v3 document is, relative to the server.
    pub openapi: Option<String>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The resources in an APIGroupDiscoveryList.
pub fn from_aggregated(list: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    if list["kind"] != "APIGroupDiscoveryList" {
        return None;
    }
    let group = list["items"].as_array()?.iter().find(|item| item["metadata"]["name"] == group)?;
    let version = group["versions"].as_array()?.iter().find(|one| one["version"] == version)?;
    Some(version["resources"].as_array().cloned().unwrap_or_default())
}

/// The resources in an APIResourceList.
pub fn from_list(list: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    if list["kind"] != "APIResourceList" {
        return None;
    }
    let all = list["resources"].as_array()?;
    let response = |one: &Value| {
        let or = |field: &str, otherwise: &str| match text(&one[field]) {
            "" => otherwise.to_owned(),
            said => said.to_owned(),
        };
        json!({"group": or("group", group), "version": or("version", version), "kind": one["kind"]})
    };
    let verbs = |one: &Value| one["verbs"].as_array().cloned().unwrap_or_default();
    let mut resources: Vec<Value> = Vec::new();
    for one in all.iter().filter(|one| !text(&one["name"]).contains('/')) {
        let name = text(&one["name"]);
        let mut entry = json!({"resource": name, "responseKind": response(one), "verbs": verbs(one),
            "scope": if one["namespaced"] == true { "Namespaced" } else { "Cluster" },
            "singularResource": text(&one["singularName"])});
        for field in ["shortNames", "categories"] {
            if one[field].as_array().is_some_and(|list| !list.is_empty()) {
                entry[field] = one[field].clone();
            }
        }
        let prefix = format!("{name}/");
        let below = all.iter().filter_map(|sub| Some((text(&sub["name"]).strip_prefix(&prefix)?, sub)));
        let below: Vec<Value> = below
            .map(|(name, sub)| json!({"subresource": name, "responseKind": response(sub), "verbs": verbs(sub)}))
            .collect();
        if !below.is_empty() {
            entry["subresources"] = below.into();
        }
        resources.push(entry);
    }
    Some(resources)
}

/// Where the index of OpenAPI v3 documents says that one of them is.
pub fn openapi(index: &Value, group: &str, version: &str) -> Option<String> {
    let url = index["paths"][format!("apis/{group}/{version}")]["serverRelativeURL"].as_str()?;
    // It has to be a document of this server and of no other.
    let path = format!("/openapi/v3/apis/{group}/{version}");
    (url == path || url.strip_prefix(&path).is_some_and(|rest| rest.starts_with('?'))).then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let list = json!({"kind": "APIResourceList", "resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": ["get", "list"],
             "shortNames": ["fl"]},
            {"name": "flunders/status", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
            {"name": "fischers", "namespaced": false, "kind": "Fischer", "group": "other", "version": "v1", "verbs": []}]});
        let found = from_list(&list, "wardle", "v1alpha1").unwrap();
        let aggregated = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "wardle"},
            "versions": [{"version": "v1alpha1", "resources": found}]}]});
        assert_eq!(from_aggregated(&aggregated, "wardle", "v1alpha1").unwrap(), found);
        assert_eq!(from_aggregated(&aggregated, "wardle", "v1"), None);
        assert_eq!(found[0]["subresources"][0]["subresource"], "status");
        assert_eq!(found[0]["responseKind"], json!({"group": "wardle", "version": "v1alpha1", "kind": "Flunder"}));
        assert_eq!((&found[1]["scope"], &found[1]["responseKind"]["group"]), (&json!("Cluster"), &json!("other")));
        assert!(from_list(&json!({"kind": "Status"}), "wardle", "v1alpha1").is_none());
    }

    #[test]
    fn documents_of_other_places_are_not_taken() {
        let index = |url: &str| json!({"paths": {"apis/g/v1": {"serverRelativeURL": url}}});
        let at = |url: &str| openapi(&index(url), "g", "v1");
        assert_eq!(at("/openapi/v3/apis/g/v1?hash=A").as_deref(), Some("/openapi/v3/apis/g/v1?hash=A"));
        for wrong in ["https://elsewhere/openapi/v3/apis/g/v1", "/openapi/v3/apis/g/v1/../x", "/metrics", ""] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }
}
