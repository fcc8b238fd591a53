//! From a new workspace to a ready one, and from a deleted one to none.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cache::object::Object;
use request::ROOT;
use schema::status::Result;
use serde_json::{Value, json};

use super::{
    GROUP, TYPES, VERSION, WORKSPACES,
    birth::{self, resolve},
    death, light, path,
    types::{Reference, Resolved, system_types},
};
use crate::{Server, internal::Internal};

pub const READY: &str = "Ready";
const INITIALIZING: &str = "Initializing";
const RETRY: Duration = Duration::from_secs(2);

pub async fn run(server: Arc<Server>) {
    if let Err(status) = show_system_types(&server).await {
        tracing::warn!(error = %status, "the types that root has from the start could not be made");
    }
    move_along(&server);
    // Each waits at most once for its time to come.
    let waiting: Arc<Mutex<HashSet<Box<str>>>> = Arc::default();
    loop {
        let key = server.workspaces.queue.pop().await;
        let again = match look_after(&server, &key).await {
            Ok(again) => again,
            Err(status) => {
                tracing::warn!(workspace = &*key, error = %status, "a workspace could not be brought to order; trying again");
                Some(RETRY)
            }
        };
        match again {
            None => {}
            Some(Duration::ZERO) => server.workspaces.queue.push(&key),
            Some(after) if waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) => {
                let (workspaces, waiting) = (server.workspaces.clone(), waiting.clone());
                let push = move |key: &str| {
                    waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
                    workspaces.queue.push(key);
                };
                server.workspaces.queue.again(key, push, after);
            }
            Some(_) => {}
        }
    }
}

/// They hold anyway; as objects they can be seen and changed.
async fn show_system_types(server: &Arc<Server>) -> Result<()> {
    let hand = Internal::new(server, ROOT, "selvedge");
    for one in system_types() {
        let key = format!("{ROOT}//{}", one["metadata"]["name"].as_str().unwrap_or_default());
        if server.cache.get(TYPES, &key).is_none() {
            hand.ensure(&hand.kind(GROUP, VERSION, "workspacetypes")?, "", one).await?;
        }
    }
    Ok(())
}

/// A server that listens elsewhere than before says so in every workspace's URL.
fn move_along(server: &Server) {
    if server.has_shared_store() {
        return;
    }
    for object in server.cache.snapshot(WORKSPACES).items.range("", "") {
        let Some(path) = path::of_object(&object.key).filter(|_| !light::is_light(object)) else { continue };
        let url = schema::selector::scan::string_at(&object.json, &["spec", "URL"]);
        if url.is_some_and(|url| url != birth::url(server, &path)) {
            server.workspaces.queue.push(&object.key);
        }
    }
}

/// Does what is to be done for one workspace. Answers when to look at it again, if nothing else would cause that.
async fn look_after(server: &Arc<Server>, key: &str) -> Result<Option<Duration>> {
    let Some(path) = path::of_object(key) else { return Ok(None) };
    let Some(object) = server.cache.get(WORKSPACES, key).filter(|object| !light::is_light(object)) else {
        return Ok(None);
    };
    let hand = Internal::new(server, object.cluster(), "selvedge");
    let value = object.value();
    if value["metadata"]["deletionTimestamp"].is_string() {
        return death::take_down(&hand, &object, &path).await;
    }
    let url = birth::url(server, &path);
    if value["spec"]["URL"] != url.as_str() && !server.has_shared_store() {
        let kind = hand.kind(GROUP, VERSION, "workspaces")?;
        hand.change(&kind, "", object.name(), "", |value| value["spec"]["URL"] = url.as_str().into()).await?;
    }
    if value["status"]["phase"] == READY {
        return Ok(None);
    }
    initialize(&hand, &object, &value, &path).await
}

/// Makes the bindings of the type, waits for them and for whoever else has a say, and calls the workspace ready.
async fn initialize(hand: &Internal, object: &Object, value: &Value, path: &str) -> Result<Option<Duration>> {
    let server = hand.server();
    let of_type = Reference::of(&value["spec"]["type"]).and_then(|one| resolve(server, &one)).unwrap_or_default();
    let inside = Internal::new(server, path, "selvedge");
    let mut waiting = Vec::new();
    let bindings = of_type.bindings();
    if !bindings.is_empty() {
        let kind = inside.kind("apis.kcp.io", VERSION, "apibindings")?;
        for (home, export) in &bindings {
            let name = binding_name(&bindings, home, export);
            let binding =
                json!({"metadata": {"name": name}, "spec": {"reference": {"export": {"path": home, "name": export}}}});
            if let Err(status) = inside.ensure(&kind, "", binding).await {
                waiting.push(format!("APIBinding {name} could not be made: {}", status.message));
            } else if inside.get(&kind, "", &name).is_none_or(|b| b.value()["status"]["phase"] != "Bound") {
                waiting.push(format!("APIBinding {name} is not bound yet"));
            }
        }
    }
    let initializers = value["status"]["initializers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    waiting.extend(initializers.map(|name| format!("initializer {name} has not finished")));
    let status = status(&waiting, &value["status"], &clock::now());
    let kind = hand.kind(GROUP, VERSION, "workspaces")?;
    hand.change(&kind, "", object.name(), "status", |value| value["status"] = status.clone()).await?;
    Ok((!waiting.is_empty()).then_some(RETRY))
}

/// By the export's name, and by its workspace too if there are several of that name.
fn binding_name(all: &[(String, String)], home: &str, export: &str) -> String {
    match all.iter().filter(|(_, other)| other == export).count() {
        1 => export.to_owned(),
        _ => format!("{}.{export}", home.replace(':', ".")),
    }
}

/// The status with which a workspace is made: mostly it is ready at once.
pub fn first_status(of_type: &Resolved, now: &str) -> Value {
    let initializers = of_type.initializers();
    let mut waiting: Vec<String> =
        of_type.bindings().iter().map(|(_, export)| format!("APIBinding {export} is not bound yet")).collect();
    waiting.extend(initializers.iter().map(|name| format!("initializer {name} has not finished")));
    let mut before = json!({});
    if !initializers.is_empty() {
        before["initializers"] = json!(initializers);
    }
    status(&waiting, &before, now)
}

/// What a workspace that waits for this says of itself.
fn status(waiting: &[String], before: &Value, now: &str) -> Value {
    let ready = waiting.is_empty();
    let conditions = match ready {
        true => vec![condition("Ready", true, "", "", now)],
        false => vec![condition("Ready", false, INITIALIZING, &waiting.join("; "), now)],
    };
    let mut status = before.as_object().cloned().unwrap_or_default();
    status.insert("phase".into(), if ready { READY } else { INITIALIZING }.into());
    let initialized = condition("WorkspaceInitialized", ready, if ready { "" } else { INITIALIZING }, "", now);
    let all = conditions.into_iter().chain([condition("WorkspaceScheduled", true, "", "", now), initialized]);
    status.insert("conditions".into(), with_times(all.collect(), &before["conditions"]));
    if ready {
        status.remove("initializers");
    }
    status.into()
}

pub fn condition(kind: &str, good: bool, reason: &str, message: &str, now: &str) -> Value {
    let mut condition = json!({"type": kind, "status": if good { "True" } else { "False" }, "lastTransitionTime": now});
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[field] = text.into();
        }
    }
    condition
}

/// Conditions that did not change keep their time.
pub fn with_times(mut new: Vec<Value>, old: &Value) -> Value {
    for condition in &mut new {
        let before = old.as_array().into_iter().flatten().find(|o| o["type"] == condition["type"]);
        if let Some(before) = before.filter(|before| before["status"] == condition["status"]) {
            condition["lastTransitionTime"] = before["lastTransitionTime"].clone();
        }
    }
    new.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspaces::types::Type;

    fn of_type(spec: Value) -> Resolved {
        Resolved(vec![Type::of(Reference::new("root", "t"), &json!({"spec": spec}))])
    }

    #[test]
    fn most_are_ready_at_once() {
        let status = first_status(&of_type(json!({})), "now");
        assert_eq!(status["phase"], READY);
        assert_eq!(status["conditions"][0], json!({"type": "Ready", "status": "True", "lastTransitionTime": "now"}));
        assert!(status.get("initializers").is_none());
    }

    #[test]
    fn some_wait() {
        let waits =
            of_type(json!({"initializer": true, "defaultAPIBindings": [{"path": "root:p", "export": "widgets"}]}));
        let first = first_status(&waits, "then");
        assert_eq!((&first["phase"], &first["initializers"]), (&json!(INITIALIZING), &json!(["root:t"])));
        let message = first["conditions"][0]["message"].as_str().unwrap();
        assert_eq!(message, "APIBinding widgets is not bound yet; initializer root:t has not finished");
        let done = status(&[], &first, "later");
        assert_eq!(done["phase"], READY);
        let times: Vec<&Value> =
            done["conditions"].as_array().unwrap().iter().map(|c| &c["lastTransitionTime"]).collect();
        assert_eq!(times, ["later", "then", "later"], "what stayed true keeps its time");
        assert!(done.get("initializers").is_none());
    }

    #[test]
    fn bindings_are_named_by_exports() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let all = [pair("root:a", "x"), pair("root:b", "x"), pair("root:a", "y")];
        assert_eq!(binding_name(&all, "root:a", "y"), "y");
        assert_eq!(binding_name(&all, "root:a", "x"), "root.a.x");
    }
}
