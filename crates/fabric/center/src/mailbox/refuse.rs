//! What somebody is told who wants to change what a mailbox only shows.

use std::sync::Arc;

use cache::object::Object;
use identity::Attributes;
use kinds::{EdgeId, names};
use schema::selector::scan;
use schema::status::Status;
use server::Server;

/// Names the object in which the change belongs.
pub fn refusal(edge: &EdgeId, shown: &Server, asked: &Attributes) -> Status {
    let group = if asked.group.is_empty() { "core" } else { &asked.group };
    let place = format!("root/{}/{}", if is_namespace(asked) { "" } else { &asked.namespace }, asked.name);
    let object = Some(&asked.name).filter(|name| !name.is_empty());
    let object = object.and_then(|_| shown.cache.get(&format!("{group}/{}", asked.resource), &place));
    let message = match object {
        Some(object) => format!("{} {}", what(asked), of_object(edge, &object)),
        None if asked.verb == "create" => format!(
            "nothing is made in the mailbox of {edge}: make it in a workload workspace, and let an EdgePlacement there select it"
        ),
        None => format!(
            "nothing is changed in the mailbox of {edge}: it shows what placements send there and what the edge reports"
        ),
    };
    Status::new(405, "MethodNotAllowed", message).about(&asked.group, &asked.resource, &asked.name)
}

fn is_namespace(asked: &Attributes) -> bool {
    asked.group.is_empty() && asked.resource == "namespaces"
}

fn what(asked: &Attributes) -> String {
    match asked.group.as_str() {
        "" => format!("{} {:?}", asked.resource, asked.name),
        group => format!("{}.{group} {:?}", asked.resource, asked.name),
    }
}

fn of_object(edge: &EdgeId, object: &Arc<Object>) -> String {
    let text = |path: &[&str]| -> Option<String> { serde_json::from_slice(scan::raw_at(&object.json, path)?).ok() };
    let kind = text(&["kind"]).unwrap_or_default();
    let name = match object.namespace() {
        "" => object.name().to_owned(),
        namespace => format!("{namespace}/{}", object.name()),
    };
    if text(&["metadata", "labels", names::UPSYNCED]).is_some() {
        return format!(
            "was made at the edge {edge} itself and is only shown here: change {kind} {name} there, also through /clusters/{}",
            edge.mailbox()
        );
    }
    match text(&["metadata", "annotations", names::SOURCE]) {
        Some(workspace) => format!(
            "is what the edge {edge} shall hold, and is only shown here: edit {kind} {name} in the workspace {workspace}, where it comes from"
        ),
        None => format!("is made for the edge {edge} from the placements that reach it: edit these"),
    }
}
