//! Rows of jobs.

use serde_json::Value;

use crate::table::age::{age, human, seconds, since};
use crate::table::read::{containers, count, has, int, is_true, items, name, selector, text, text_or};
use crate::table::tree::Node;

pub(super) fn job(o: &Node<'_>, now: i64) -> Vec<Value> {
    let succeeded = int(o, "/status/succeeded");
    let completions = match o.pointer("/spec/completions").and_then(|node| node.as_i64()) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None => match int(o, "/spec/parallelism") {
            parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            _ => format!("{succeeded}/1"),
        },
    };
    let started = seconds(&text(o, "/status/startTime"));
    let ended = seconds(&text(o, "/status/completionTime")).unwrap_or(now);
    let duration = started.map(|start| human(ended.saturating_sub(start))).unwrap_or_default();
    let [names, images] = containers(o, "/spec/template/spec/containers");
    vec![
        name(o),
        status(o).into(),
        completions.into(),
        duration.into(),
        age(o, now),
        names,
        images,
        selector(o, "/spec/selector"),
    ]
}

fn status(o: &Node<'_>) -> &'static str {
    let conditions = &items(o, "/status/conditions");
    if is_true(conditions, "Complete") {
        return "Complete";
    }
    if is_true(conditions, "Failed") {
        return "Failed";
    }
    if has(o, "/metadata/deletionTimestamp") {
        return "Terminating";
    }
    let on_the_way = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
    on_the_way.into_iter().find(|kind| is_true(conditions, kind)).unwrap_or("Running")
}

pub(super) fn cron_job(o: &Node<'_>, now: i64) -> Vec<Value> {
    let last = if has(o, "/status/lastScheduleTime") {
        since(o, "/status/lastScheduleTime", now)
    } else {
        "<none>".to_owned()
    };
    let suspend = match o.pointer("/spec/suspend").and_then(|node| node.as_bool()) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let [names, images] = containers(o, "/spec/jobTemplate/spec/template/spec/containers");
    vec![
        name(o),
        text(o, "/spec/schedule").into(),
        text_or(o, "/spec/timeZone", "<none>").into(),
        suspend.into(),
        count(o, "/status/active").into(),
        last.into(),
        age(o, now),
        names,
        images,
        selector(o, "/spec/jobTemplate/spec/selector"),
    ]
}
