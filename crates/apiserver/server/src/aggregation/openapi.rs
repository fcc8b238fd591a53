//! The OpenAPI documents with what remote servers publish in them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Remote, check};
use crate::Server;

/// Lists the documents of remote servers in the index of OpenAPI v3.
pub fn index(document: &mut Value, remotes: &[Arc<Remote>]) {
    for remote in remotes {
        let path = format!("apis/{}", remote.group_version());
        if let Some(url) = remote.documents().openapi.as_deref()
            && document["paths"][&path].is_null()
        {
            document["paths"][&path] = json!({"serverRelativeURL": url});
        }
    }
}

/// Adds what the available servers of a workspace publish to the OpenAPI v2 document. One that does not answer is left
/// out.
pub async fn v2(server: &Arc<Server>, document: &mut Value, remotes: &[Arc<Remote>]) {
    for remote in remotes.iter().filter(|remote| remote.is_available()) {
        let Ok((200, _, body)) = check::fetch(server, remote, "/openapi/v2", "application/json").await else {
            continue;
        };
        let Ok(theirs) = serde_json::from_slice::<Value>(&body) else { continue };
        merge(document, theirs, &remote.group_version());
    }
}

/// Takes over the paths of one group version, and the definitions that are not known.
fn merge(document: &mut Value, mut theirs: Value, group_version: &str) {
    let prefix = format!("/apis/{group_version}/");
    for (part, wanted) in [("paths", Some(prefix.as_str())), ("definitions", None)] {
        let Value::Object(found) = theirs[part].take() else { continue };
        let Some(all) = document[part].as_object_mut() else { continue };
        for (name, value) in found {
            if wanted.is_none_or(|prefix| name.starts_with(prefix)) {
                all.entry(name).or_insert(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_group_version_are_taken() {
        let mut document = json!({"paths": {"/apis/g/v1/": 1}, "definitions": {"a": 1}});
        let theirs = json!({"paths": {"/apis/g/v1/things": 2, "/apis/g/v1/": 2, "/apis/apps/v1/": 2}, "definitions": {"a": 2, "b": 2}});
        merge(&mut document, theirs, "g/v1");
        let want = json!({"paths": {"/apis/g/v1/": 1, "/apis/g/v1/things": 2}, "definitions": {"a": 1, "b": 2}});
        assert_eq!(document, want);
    }
}
