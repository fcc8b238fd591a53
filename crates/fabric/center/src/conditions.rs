//! What a SyncTarget's status says of its edge. Pure.

use kinds::{EdgeId, forward::Standing, names};
use serde_json::{Value, json};

use crate::{accounts::shown, edges::Facts, instances::Decision, target::Allowed};

/// At most this many refused objects are named, each in so many characters.
const NAMED: usize = 5;
const LONG: usize = 240;

/// What is to be said.
pub struct Said<'a> {
    pub edge: &'a EdgeId,
    pub link: Link<'a>,
    /// Whose objects the edge shall hold, and whether the SyncTarget may ask for them.
    pub workspace: Option<(&'a str, Allowed)>,
    /// Placements reach it.
    pub placed: bool,
    pub cut: bool,
    /// Where several centers share a store: this one.
    pub center: Option<&'a str>,
    /// Writes that waited on the edge and were not taken; nothing while the edge has not said.
    pub writes: Option<&'a Standing>,
    /// Several machines use its identity.
    pub shared: Option<&'a Decision>,
}

pub enum Link<'a> {
    Up {
        heard: &'a str,
        facts: &'a Facts,
    },
    /// Since when, and when the edge was last heard.
    Down {
        since: &'a str,
        heard: Option<&'a str>,
    },
}

/// Brings a SyncTarget's status up to date. False if it says all that already.
pub fn write(value: &mut Value, said: &Said<'_>, now: &str) -> bool {
    let before = value.get("status").cloned().unwrap_or_default();
    // Another center has the edge by now: what this one lost does not matter.
    let has_it = before["center"].as_str();
    if matches!(said.link, Link::Down { .. }) && said.center.is_some() && has_it.is_some() && has_it != said.center {
        return false;
    }
    let conditions = before["conditions"].as_array().cloned().unwrap_or_default();
    let mut new = conditions.clone();
    let at = match said.link {
        Link::Up { .. } => now,
        Link::Down { since, .. } => since,
    };
    for (kind, status, reason, message) in wanted(said, &conditions) {
        set(&mut new, kind, status, reason, &message, at);
    }
    let mut status = before.clone();
    if !status.is_object() {
        status = json!({});
    }
    status["conditions"] = new.into();
    let uid = value.pointer("/metadata/uid").and_then(Value::as_str);
    if let (Link::Up { .. }, Some(uid)) = (&said.link, uid) {
        status["mailbox"] = kinds::mailbox::path(&said.edge.workspace, uid).into();
    }
    if let (Link::Up { .. }, Some(center)) = (&said.link, said.center) {
        status["center"] = center.into();
    }
    if status == before {
        return false;
    }
    match said.link {
        Link::Up { heard, .. } | Link::Down { heard: Some(heard), .. } => {
            status["lastSyncerHeartbeatTime"] = heard.into()
        }
        Link::Down { .. } => {}
    }
    value["status"] = status;
    true
}

type Wanted = (&'static str, bool, &'static str, String);

fn wanted(said: &Said<'_>, before: &[Value]) -> Vec<Wanted> {
    let cut = said.cut;
    let facts = match said.link {
        Link::Up { facts, .. } => facts,
        Link::Down { since, heard, .. } => {
            let (reason, why) =
                if cut { ("LinkCut", "its link was cut here") } else { ("Offline", "it is not connected") };
            let last = heard.map(|heard| format!("; last heard {heard}")).unwrap_or_default();
            let message = format!("since {since} {why}{last}");
            let offline =
                [("Ready", false, reason, message.clone()), ("HeartbeatHealthy", false, "NoHeartbeat", message)];
            return offline.into_iter().chain(shared(said, before)).collect();
        }
    };
    let mut all = vec![ready(said, facts), ("HeartbeatHealthy", true, "Heartbeat", String::new())];
    all.extend(shared(said, before));
    let mut trouble = |kind, settled, there: Option<(&'static str, String)>| match there {
        Some((reason, message)) => all.push((kind, true, reason, message)),
        // What was never there need not be said to be gone.
        None if settled && before.iter().any(|c| c["type"] == kind && c["status"] != "False") => {
            all.push((kind, false, "Settled", String::new()));
        }
        None => {}
    };
    let rolled_back = facts.rolled_back.map(|seen| {
        let message = format!(
            "the edge has seen revision {} of a history that this center does not have: it was restored from a backup, or is another \
             center. The edge keeps what it has. To make it follow this center: selvedge edge adopt {}",
            seen.revision, said.edge
        );
        ("OtherHistory", message)
    });
    trouble("RolledBack", true, rolled_back);
    let held = facts.held.map(|(pending, of)| {
        let message = format!(
            "{pending} of {of} objects would be deleted at the edge{}. All of them stay as they are until that is confirmed. If it is meant: \
             selvedge edge confirm {} --objects={pending}",
            from(facts),
            said.edge
        );
        ("TooMany", message)
    });
    trouble("DeletionHeld", facts.is_settled(), held);
    trouble("Stalled", true, facts.stalled.as_ref().map(|why| ("CannotWrite", short(why))));
    let refused = (facts.refused_count() > 0).then(|| ("Refused", refused(facts)));
    trouble("ObjectsRefused", facts.is_settled(), refused);
    let unkept = (!facts.unkept.is_empty()).then(|| {
        let named: Vec<String> = facts.unkept.iter().map(|(key, why)| short(&format!("{}: {why}", shown(key)))).collect();
        let message = format!(
            "the center does not keep some of what the edge reports, among them {}. It keeps reports of objects that are \
             placed there or asked for with spec.upsync of an EdgePlacement, within limits",
            named.join("; ")
        );
        ("NotKept", message)
    });
    trouble("ReportsRefused", facts.is_settled(), unkept);
    let refused = said.writes.filter(|writes| writes.refused > 0).map(|writes| {
        let objects: Vec<String> = writes.objects.iter().take(NAMED).map(|name| short(name)).collect();
        let message = format!(
            "{} writes that were made on the edge while it was offline were not taken ({}). They can be read there, and deleted when \
             they are not needed any more: kubectl get offlinewrites",
            writes.refused,
            objects.join(", ")
        );
        ("NotTaken", message)
    });
    trouble("OfflineWritesRefused", said.writes.is_some(), refused);
    all
}

/// Whether several machines use its identity.
fn shared(said: &Said<'_>, before: &[Value]) -> Option<Wanted> {
    const KIND: &str = "IdentityShared";
    match said.shared {
        Some(decision) => {
            let message = decision.message(&said.edge.workspace, &said.edge.name, names::ACCEPT_INSTANCE);
            Some((KIND, true, "TwoMachines", message))
        }
        None => {
            let was = before.iter().any(|c| c["type"] == KIND && c["status"] != "False");
            was.then(|| (KIND, false, "Settled", String::new()))
        }
    }
}

/// From which placements the deletions are that are held.
fn from(facts: &Facts) -> String {
    let named: Vec<String> =
        facts.held_by.iter().take(NAMED).map(|(id, count)| format!("{count} of the placement {id}")).collect();
    let more = facts.held_by.len().saturating_sub(named.len());
    match (named.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!(" ({})", named.join(", ")),
        (false, more) => format!(" ({} and {more} more placements)", named.join(", ")),
    }
}

fn ready(said: &Said<'_>, facts: &Facts) -> Wanted {
    if facts.rolled_back.is_some() {
        return ("Ready", false, "RolledBack", "it keeps what it has: see the condition RolledBack".to_owned());
    }
    if let Some(why) = &facts.stalled {
        return ("Ready", false, "Stalled", short(why));
    }
    match said.workspace {
        Some((workspace, Allowed::Yes)) => ("Ready", true, "Connected", format!("it holds the objects of {workspace}")),
        Some((workspace, Allowed::Undecided)) => {
            let (home, name, annotation) = (&said.edge.workspace, &said.edge.name, names::WORKSPACE);
            let message = format!(
                "{annotation} names {workspace}, but nobody who may has decided that, or the workspace was made anew since. Somebody with the verb \"project\" on the path \"/\" in {workspace} has to write it again: selvedge ws {home} && kubectl annotate synctarget {name} {annotation}-; kubectl annotate synctarget {name} {annotation}={workspace}"
            );
            ("Ready", false, "WorkspaceNotAllowed", message)
        }
        Some((workspace, Allowed::Outside)) => {
            let home = &said.edge.workspace;
            let message = format!(
                "{} names {workspace}, but a SyncTarget in {home} can only have objects of {home} and of workspaces inside it",
                names::WORKSPACE
            );
            ("Ready", false, "WorkspaceNotAllowed", message)
        }
        None if said.placed => ("Ready", true, "Connected", "it holds what is placed on it".to_owned()),
        None => {
            let (home, name, annotation) = (&said.edge.workspace, &said.edge.name, names::WORKSPACE);
            let message = format!(
                "nothing is meant for it yet; place something on it with an EdgePlacement, or give it a workspace's objects: selvedge ws {home} && kubectl annotate synctarget {name} {annotation}=<workspace>"
            );
            ("Ready", true, "Connected", message)
        }
    }
}

fn refused(facts: &Facts) -> String {
    let count = facts.refused_count();
    let named: Vec<String> =
        facts.refused.iter().take(NAMED).map(|(key, why)| short(&format!("{}: {why}", shown(key)))).collect();
    let more = count.saturating_sub(named.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the edge could not take {count}: {}{more}", named.join("; "))
}

fn short(text: &str) -> String {
    match text.char_indices().nth(LONG) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn set(all: &mut Vec<Value>, kind: &str, status: bool, reason: &str, message: &str, at: &str) {
    let status = if status { "True" } else { "False" };
    let mut new =
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at});
    match all.iter_mut().find(|c| c["type"] == kind) {
        Some(old) => {
            if old["status"] == status {
                new["lastTransitionTime"] = old["lastTransitionTime"].take();
            }
            *old = new;
        }
        None => all.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::condition;
    use link::Position;

    fn edge() -> EdgeId {
        EdgeId::new("root", "florin")
    }

    fn said<'a>(edge: &'a EdgeId, link: Link<'a>) -> Said<'a> {
        let workspace = Some(("root:shop", Allowed::Yes));
        Said { edge, link, workspace, placed: false, cut: false, center: Some("one"), writes: None, shared: None }
    }

    fn up<'a>(edge: &'a EdgeId, facts: &'a Facts) -> Said<'a> {
        said(edge, Link::Up { heard: "t1", facts })
    }

    fn down(edge: &EdgeId) -> Said<'_> {
        said(edge, Link::Down { since: "t5", heard: Some("t4") })
    }

    fn text<'a>(value: &'a Value, kind: &str, field: &str) -> &'a str {
        condition(value, kind).map_or("", |c| c[field].as_str().unwrap_or_default())
    }

    #[test]
    fn coming_and_going_is_written_once() {
        let (edge, facts) = (edge(), Facts { connected: true, ..Facts::default() });
        let mut value = json!({"metadata": {"name": "florin", "uid": "u"}});
        assert!(write(&mut value, &up(&edge, &facts), "t1"));
        assert_eq!(value["status"]["mailbox"], kinds::mailbox::path("root", "u"));
        assert_eq!(text(&value, "Ready", "status"), "True");
        assert_eq!(value["status"]["lastSyncerHeartbeatTime"], "t1");
        assert!(!write(&mut value, &up(&edge, &facts), "t2"), "heartbeats cost nothing");
        let mut elsewhere = value.clone();
        elsewhere["status"]["center"] = "two".into();
        assert!(!write(&mut elsewhere, &down(&edge), "t6"), "another center has it");
        assert!(write(&mut value, &down(&edge), "t6"));
        assert_eq!(text(&value, "Ready", "status"), "False");
        assert_eq!(text(&value, "Ready", "lastTransitionTime"), "t5", "since it went, not since that was written");
        assert_eq!(text(&value, "HeartbeatHealthy", "message"), "since t5 it is not connected; last heard t4");
        assert!(condition(&value, "DeletionHeld").is_none());
    }

    #[test]
    fn writes_that_were_not_taken_are_shown_until_they_are_gone() {
        let (edge, facts) = (edge(), Facts { connected: true, ..Facts::default() });
        let mut value = json!({});
        let mut say = |writes: Option<&Standing>, now: &str| {
            write(&mut value, &Said { writes, ..up(&edge, &facts) }, now);
            text(&value, "OfflineWritesRefused", "status").to_owned()
        };
        assert_eq!(say(Some(&Standing::default()), "t1"), "");
        let standing = Standing { refused: 2, objects: vec!["ConfigMap shop/menu".into()] };
        assert_eq!(say(Some(&standing), "t2"), "True");
        assert_eq!(say(None, "t3"), "True", "the edge has not said otherwise");
        assert_eq!(say(Some(&Standing::default()), "t4"), "False");
    }

    #[test]
    fn troubles_come_with_what_to_do_and_go_when_settled() {
        let edge = edge();
        let mut value = json!({});
        let mut facts = Facts { connected: true, held: Some((12, 20)), ..Facts::default() };
        facts.held_by.insert(placement::Id::new("root:shop", "web"), 7);
        facts.rolled_back = Some(Position { incarnation: 1, revision: 42 });
        for n in 0..70 {
            facts.refuse(format!("core/configmaps/default/{n:02}").into(), "too strange".repeat(100));
        }
        assert!(write(&mut value, &up(&edge, &facts), "t1"));
        assert_eq!(text(&value, "Ready", "status"), "False");
        let message = text(&value, "DeletionHeld", "message");
        assert!(
            message.starts_with("12 of 20 objects would be deleted at the edge (7 of the placement root:shop:web). ")
        );
        assert!(message.ends_with(": selvedge edge confirm root:florin --objects=12"), "{message}");
        assert!(text(&value, "RolledBack", "message").ends_with(": selvedge edge adopt root:florin"));
        let message = text(&value, "ObjectsRefused", "message");
        assert!(
            message.starts_with("the edge could not take 70: core/configmaps/default/00: too strange"),
            "{message}"
        );
        assert!(message.ends_with(" and 65 more") && message.len() < 2000, "{message}");

        // It connects anew: what was wrong is not known to be right yet.
        let mut facts = Facts { connected: true, ..Facts::default() };
        assert!(write(&mut value, &up(&edge, &facts), "t2"));
        assert_eq!(text(&value, "DeletionHeld", "status"), "True");
        assert_eq!(text(&value, "RolledBack", "status"), "False");
        facts.in_sync = true;
        assert!(write(&mut value, &up(&edge, &facts), "t3"));
        assert_eq!(text(&value, "DeletionHeld", "status"), "False");
        assert_eq!(text(&value, "ObjectsRefused", "lastTransitionTime"), "t3");
        assert!(!write(&mut value, &up(&edge, &facts), "t4"));
    }
}
