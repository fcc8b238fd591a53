//! Keeps the record of which workspace claimed which namespace first, for [`placement::tenure`]: a ConfigMap for each placement, in the
//! workspace of the placement service, where tenants have no rights. Being objects, the records reach every center that shares the store.

use std::sync::Arc;

use cache::object::Object;
use kinds::mailbox::PROVIDER;
use placement::{Id, engine::Engine, tenure::Tenure};
use schema::status::Result;
use serde_json::{Value, json};
use server::Server;
use server::internal::Internal;

use crate::{Fleet, resolved::Due};

pub const COLLECTION: &str = "core/configmaps";
const NAMESPACE: &str = "default";
const PREFIX: &str = "claims-of-";
const MANAGER: &str = "selvedge-placement";

/// Whether an object is such a record.
pub fn is_record(object: &Object) -> bool {
    object.cluster() == PROVIDER && object.namespace() == NAMESPACE && object.name().starts_with(PREFIX)
}

/// The placement that a record is about.
pub fn of(object: &Object) -> Option<Id> {
    read(&object.value()).map(|(id, _)| id)
}

fn read(value: &Value) -> Option<(Id, Tenure)> {
    let text = |field: &str| value["data"][field].as_str();
    Some((Id::new(text("workspace")?, text("placement")?), serde_json::from_str(text("claims")?).ok()?))
}

fn data(id: &Id, tenure: &Tenure) -> Value {
    let claims = serde_json::to_string(tenure).unwrap_or_default();
    json!({"workspace": &*id.workspace, "placement": &*id.name, "claims": claims})
}

/// Passes a record to the engine. One of a former placement of the same name says nothing.
pub fn feed(engine: &mut Engine, object: &Object, gone: bool) {
    let Some((id, tenure)) = read(&object.value()) else { return };
    let recorded = engine.recorded(&id).map(|tenure| tenure.uid.clone());
    let is_current = engine.placement(&id).is_some_and(|placement| *placement.uid == *tenure.uid);
    if gone {
        if recorded == Some(tenure.uid) {
            engine.set_tenure(&id, None);
        }
    } else if is_current || recorded.is_none() {
        engine.set_tenure(&id, Some(tenure));
    }
}

/// After placements are known: what was recorded.
pub fn load(engine: &mut Engine, server: &Server) {
    let prefix = format!("{PROVIDER}/{NAMESPACE}/{PREFIX}");
    for object in server.cache.snapshot(COLLECTION).items.range(&prefix, "") {
        if is_record(object) {
            feed(engine, object, false);
        }
    }
}

/// Records of placements that went while nobody looked.
pub fn tidy(engine: &Engine, due: &Due) {
    engine.all_recorded().filter(|id| engine.placement(id).is_none()).for_each(|id| due.placement(id));
}

/// Records the claims of a placement as they are, or takes the record of one that is gone away.
pub async fn write(fleet: &Fleet, server: &Arc<Server>, id: &Id) -> Result<()> {
    let now = server.cache.revision();
    let (next, recorded, uid) = fleet.placing.read(|engine| {
        let uid = engine.placement(id).map(|placement| placement.uid.clone());
        (engine.tenure(id, now), engine.recorded(id).map(|tenure| tenure.uid.clone()), uid)
    });
    let hand = Internal::new(server, PROVIDER, MANAGER);
    let kind = hand.kind("", "v1", "configmaps")?;
    if let Some(former) = recorded.filter(|former| uid.as_deref() != Some(former))
        && let Some(found) = hand.get(&kind, NAMESPACE, &format!("{PREFIX}{former}"))
    {
        hand.delete(&kind, &found, &Default::default()).await?;
    }
    let Some(tenure) = next else { return Ok(()) };
    let name = format!("{PREFIX}{}", tenure.uid);
    let data = data(id, &tenure);
    match hand.get(&kind, NAMESPACE, &name) {
        Some(found) if found.value()["data"] == data => Ok(()),
        Some(_) => hand.change(&kind, NAMESPACE, &name, "", |value| value["data"] = data.clone()).await.map(drop),
        None => hand.ensure(&kind, NAMESPACE, json!({"metadata": {"name": name}, "data": data})).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back() {
        let id = Id::new("root:shop", "web");
        let claimed = [("a".to_owned(), false), ("b".to_owned(), true)].into_iter();
        let tenure = Tenure::next(None, "u", "[{}]", claimed, 7);
        assert_eq!(read(&json!({"data": data(&id, &tenure)})), Some((id, tenure)));
        assert_eq!(read(&json!({"data": {"workspace": "a", "placement": "b", "claims": "{"}})), None);
        assert_eq!(read(&json!({})), None);
    }
}
