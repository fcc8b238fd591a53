//! What there is to say of one edge, and how it stands in the table. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Where lists across workspaces say whose an object is.
pub const CLUSTER: &str = "kcp.io/cluster";

pub fn name(edge: &Value) -> &str {
    edge["metadata"]["name"].as_str().unwrap_or_default()
}

pub fn workspace(edge: &Value) -> &str {
    edge["metadata"]["annotations"][CLUSTER].as_str().unwrap_or_default()
}

pub fn path(edge: &Value) -> String {
    format!("{}:{}", workspace(edge), name(edge))
}

/// By what its SyncTarget says.
pub fn connected(edge: &Value) -> bool {
    condition(edge, "HeartbeatHealthy")["status"] == "True"
}

fn condition<'a>(edge: &'a Value, kind: &str) -> &'a Value {
    let all = edge["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

/// What is said with `-o json`, from a SyncTarget and from what the center knows at this moment (`live`).
pub fn facts(edge: &Value, live: &Value) -> Value {
    let ready = condition(edge, "Ready");
    let up = if live.is_null() { connected(edge) } else { live["connected"] == true };
    let state = match up {
        true => "connected",
        false if edge["metadata"]["annotations"][kinds::names::LINK] == "cut" => "cut",
        false if ready.is_null() => "never connected",
        false => "offline",
    };
    let first = |live: &Value, stored: &Value| if live.is_null() { stored.clone() } else { live.clone() };
    // What the SyncTarget says is from before the center was started again.
    let heard = if live["returning"] == true { &Value::Null } else { &edge["status"]["lastSyncerHeartbeatTime"] };
    // What somebody should do something about is said in a condition, with what to do.
    let troubles =
        ["IdentityShared", "RolledBack", "DeletionHeld", "Stalled", "ObjectsRefused"].into_iter().filter(|kind| {
            let told = condition(edge, kind);
            told["status"] == "True"
        });
    let mut troubles: Vec<&Value> = troubles.map(|kind| &condition(edge, kind)["message"]).collect();
    if up && ready["status"] == "False" && troubles.is_empty() {
        troubles.push(&ready["message"]);
    }
    json!({
        "name": name(edge),
        "workspace": workspace(edge),
        "state": state,
        "since": first(&live["since"], &condition(edge, "HeartbeatHealthy")["lastTransitionTime"]),
        "heard": first(&live["lastHeard"], heard),
        "holds": edge["metadata"]["annotations"][kinds::names::WORKSPACE],
        "objects": live["objects"],
        "inSync": up && live["inSync"] == true,
        "behind": live["pending"],
        "heldDeletions": live["heldDeletions"],
        "heldOf": live["heldOf"],
        "rolledBack": live["rolledBack"] == true,
        "stalled": !live["stalled"].is_null(),
        "refused": live["refused"],
        "troubles": troubles,
    })
}

/// What counts as a change: heartbeats alone do not.
pub fn without_times(facts: &Value) -> Value {
    let mut facts = facts.clone();
    facts["heard"].take();
    facts
}

pub fn table(facts: &[Value], now: Timestamp) -> String {
    let several = facts.iter().any(|edge| edge["workspace"] != facts[0]["workspace"]);
    let mut rows = vec![["EDGE", "LINK", "SINCE", "SYNC", "HEARD", "HOLDS"].map(str::to_owned)];
    let mut notes = String::new();
    for edge in facts {
        let text = |field: &str| edge[field].as_str().unwrap_or_default();
        let name = if several { format!("{}:{}", text("workspace"), text("name")) } else { text("name").to_owned() };
        let shown = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        for trouble in edge["troubles"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            notes.push_str(&format!("\n{name}: {trouble}\n"));
        }
        rows.push([
            name,
            text("state").to_owned(),
            shown(age(text("since"), now)),
            sync(edge),
            shown(age(text("heard"), now)),
            shown(holds(edge)),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("   ").trim_end())
    };
    rows.iter().map(line).collect::<String>() + &notes
}

/// A workspace, or what placements come to. What is to be deleted and is held back is still there.
fn holds(edge: &Value) -> String {
    let held = edge["heldDeletions"].as_u64().unwrap_or_default();
    match (edge["holds"].as_str(), edge["objects"].as_u64()) {
        (Some(workspace), _) => workspace.to_owned(),
        // An edge that holds deletions back says how many objects it has.
        (None, Some(count)) => match edge["heldOf"].as_u64().unwrap_or(count + held) {
            1 => "1 object".into(),
            all => format!("{all} objects"),
        },
        (None, None) => String::new(),
    }
}

fn sync(edge: &Value) -> String {
    let count = |field: &str| edge[field].as_u64().unwrap_or_default();
    match (count("heldDeletions"), count("refused"), edge["behind"].as_u64()) {
        _ if edge["rolledBack"] == true => "rolled back".into(),
        _ if edge["stalled"] == true => "stalled".into(),
        (held @ 1.., _, _) => format!("{held} deletions held"),
        (0, refused @ 1.., _) => format!("{refused} refused"),
        _ if edge["inSync"] == true => "in sync".into(),
        (_, _, Some(behind @ 1..)) => format!("{behind} behind"),
        // In sync when it was last heard, and nothing has changed since.
        (_, _, Some(0)) if edge["state"] != "connected" => "nothing missed".into(),
        (_, _, Some(0)) => "comparing".into(),
        (_, _, None) => "-".into(),
    }
}

/// As kubectl would say it: 5s, 12m, 3h, 2d.
fn age(time: &str, now: Timestamp) -> String {
    let Ok(then) = time.parse::<Timestamp>() else { return String::new() };
    let seconds = (now.as_second() - then.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(name: &str, conditions: Value, annotations: Value) -> Value {
        let mut edge = json!({
            "metadata": {"name": name, "annotations": annotations}, "status": {"conditions": conditions},
        });
        edge["metadata"]["annotations"][CLUSTER] = "root".into();
        edge
    }

    fn heartbeat(status: &str, at: &str) -> Value {
        json!([{"type": "Ready", "status": status}, {"type": "HeartbeatHealthy", "status": status, "lastTransitionTime": at}])
    }

    #[test]
    fn the_table() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let (then, long) = ("2026-01-01T00:59:30Z", "2025-12-30T01:00:00Z");
        let live = |connected: bool, in_sync: bool, pending: u64| json!({"connected": connected, "since": then, "inSync": in_sync, "pending": pending, "lastHeard": then});
        let held = json!({"connected": true, "since": then, "inSync": false, "pending": 9, "heldDeletions": 8, "heldOf": 12, "objects": 3});
        let mut placed = live(true, false, 12);
        placed["objects"] = 9.into();
        let mut told = heartbeat("True", then);
        told.as_array_mut().unwrap().push(json!({"type": "DeletionHeld", "status": "True", "message": "confirm 8"}));
        let facts: Vec<Value> = [
            (edge("a", heartbeat("True", then), json!({kinds::names::WORKSPACE: "root:shop"})), live(true, true, 0)),
            (edge("behind", heartbeat("True", then), json!({})), placed),
            (edge("cut", heartbeat("False", then), json!({kinds::names::LINK: "cut"})), live(false, false, 3)),
            (edge("away", heartbeat("False", long), json!({})), Value::Null),
            (edge("held", told, json!({})), held),
            (edge("new", json!([]), json!({})), Value::Null),
            (
                edge("back", heartbeat("True", then), json!({})),
                json!({"connected": true, "since": then, "pending": 0, "rolledBack": true}),
            ),
            (
                edge("crash", heartbeat("True", long), json!({})),
                json!({"connected": false, "since": then, "returning": true}),
            ),
        ]
        .iter()
        .map(|(edge, live)| facts(edge, live))
        .collect();
        let expected = "\
EDGE     LINK              SINCE   SYNC               HEARD   HOLDS
a        connected         30s     in sync            30s     root:shop
behind   connected         30s     12 behind          30s     9 objects
cut      cut               30s     3 behind           30s     -
away     offline           2d      -                  -       -
held     connected         30s     8 deletions held   -       12 objects
new      never connected   -       -                  -       -
back     connected         30s     rolled back        -       -
crash    offline           30s     -                  -       -

held: confirm 8
";
        assert_eq!(table(&facts, now), expected);
        assert_eq!(facts[0]["inSync"], true);
    }

    #[test]
    fn workspaces_are_named_when_there_are_several() {
        let mut other = edge("b", json!([]), json!({}));
        other["metadata"]["annotations"][CLUSTER] = "root:org".into();
        let facts = [facts(&edge("a", json!([]), json!({})), &Value::Null), facts(&other, &Value::Null)];
        let table = table(&facts, Timestamp::UNIX_EPOCH);
        assert!(table.contains("root:a ") && table.contains("root:org:b "), "{table}");
    }
}
