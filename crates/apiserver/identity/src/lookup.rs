//! Objects that a token is bound to, looked up in the cache.

use cache::Cache;
use serde_json::Value;

use crate::{Bound, Found, Lookup};

impl Lookup for Cache {
    fn find(&self, cluster: &str, kind: Bound, namespace: &str, name: &str) -> Option<Found> {
        let collection = match kind {
            Bound::ServiceAccount => "core/serviceaccounts",
            Bound::Pod => "core/pods",
            Bound::Secret => "core/secrets",
            Bound::Node => "core/nodes",
        };
        let value = self.get(collection, &format!("{cluster}/{namespace}/{name}"))?.value();
        let metadata = &value["metadata"];
        let deletion = metadata["deletionTimestamp"].as_str().and_then(|t| t.parse::<jiff::Timestamp>().ok());
        let uid = metadata["uid"].as_str().unwrap_or_default().to_owned();
        Some(Found { uid, deletion: deletion.map(|t| t.as_second()) })
    }

    fn secret(&self, cluster: &str, namespace: &str, name: &str) -> Option<Value> {
        Some(self.get("core/secrets", &format!("{cluster}/{namespace}/{name}"))?.value())
    }
}
