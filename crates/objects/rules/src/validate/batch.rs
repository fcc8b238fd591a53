//! Job and CronJob.

use std::collections::HashSet;

use schema::names;
use serde_json::{Value, json};

use super::meta::{self, is_selector, selector_shown, selects};
use super::node::{Node, same};
use super::{Rules, cron, internal, job_status, pod};

const MAX_PARALLEL: i64 = 100_000;
/// Bytes of a list of indexes.
const MAX_INDEXES: usize = 64 * 1024;

pub(super) fn rules(kind: &str) -> Rules {
    match kind {
        "Job" => Rules::new(job).before(job_update).status(job_status::check),
        "CronJob" => Rules::new(cron_job).updated(|new, old| cron_job_spec(new.get("spec"), Some(old.get("spec")))),
        _ => Rules::new(|_| {}),
    }
}

fn job(root: Node<'_>) {
    generated_selector(root);
    let spec = root.get("spec");
    selected_job_spec(spec);
    let completions = spec.get("completions").int_or_0();
    if spec.get("completionMode").str() == "Indexed" && completions > 0 {
        let name = root.get("metadata").get("name");
        let last = format!("{}-{}", name.str(), completions - 1);
        if !names::dns1123_label(&last).is_empty() {
            name.invalid(&format!("will not able to create pod with invalid DNS label: {last}"));
        }
    }
}

/// Unless a selector is given by hand, it is made from the job's own identity.
fn generated_selector(root: Node<'_>) {
    let (meta, spec) = (root.get("metadata"), root.get("spec"));
    if spec.get("manualSelector").bool() || !spec.get("selector").is_set() {
        return;
    }
    if meta.get("uid").str().is_empty() {
        meta.get("uid").required("");
    }
    let (uid, name) = (meta.get("uid").str(), meta.get("name").str());
    let expected = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let labels = spec.get("template").get("metadata").get("labels");
    for (key, want) in expected {
        match labels.value.get(key).and_then(Value::as_str) {
            None => labels.key(key).required(&format!("must be '{want}'")),
            Some(have) if have != want => labels.key(key).with(labels.value).invalid(&format!("must be '{want}'")),
            _ => {}
        }
    }
    let labels: serde_json::Map<String, Value> = expected.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    if !selects(spec.get("selector").value, &Value::Object(labels)) {
        let selector = spec.get("selector");
        selector.invalid_as(selector_shown(selector.value), "`selector` not auto-generated");
    }
}

fn selected_job_spec(spec: Node<'_>) {
    job_spec(spec);
    let selector = spec.get("selector");
    if selector.is_set() {
        meta::label_selector(selector);
    } else {
        selector.required("");
    }
    let labels = spec.get("template").get("metadata").get("labels");
    if is_selector(selector.value) && !selects(selector.value, labels.value) {
        labels.invalid("`selector` does not match template `labels`");
    }
}

fn job_spec(spec: Node<'_>) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.get(field).non_negative();
    }
    if spec.get("maxFailedIndexes").is_set() && !spec.get("backoffLimitPerIndex").is_set() {
        spec.get("backoffLimitPerIndex").required("when maxFailedIndexes is specified");
    }
    if spec.get("managedBy").is_set() {
        domain_prefixed_path(spec.get("managedBy"));
        if spec.get("managedBy").str().len() > 63 {
            spec.get("managedBy").too_long(63);
        }
    }
    completion_mode(spec);
    let failure = spec.get("podFailurePolicy");
    if failure.is_set() {
        pod_failure_policy(spec, failure);
    }
    success_policy(spec);
    let replacement = spec.get("podReplacementPolicy");
    if replacement.is_set() {
        replacement.one_of(if failure.is_set() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] });
    }
    pod::template(spec.get("template"));
    let restart = spec.get("template").get("spec").get("restartPolicy");
    match restart.str() {
        "Always" | "" => restart.required("valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if failure.is_set() => {
            restart.invalid("only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        _ => restart.not_supported(&["OnFailure", "Never"]),
    }
}

fn completion_mode(spec: Node<'_>) {
    let mode = spec.get("completionMode");
    let (completions, parallelism, failed, per_index) = (
        spec.get("completions"),
        spec.get("parallelism"),
        spec.get("maxFailedIndexes"),
        spec.get("backoffLimitPerIndex"),
    );
    if mode.is_set() {
        mode.one_of(&["NonIndexed", "Indexed"]);
    }
    if mode.str() == "Indexed" {
        if !completions.is_set() {
            completions.required("when completion mode is Indexed");
        }
        if parallelism.int_or_0() > MAX_PARALLEL {
            parallelism
                .invalid(&format!("must be less than or equal to {MAX_PARALLEL} when completion mode is Indexed"));
        }
        if completions.is_set() && failed.is_set() && failed.int_or_0() > completions.int_or_0() {
            failed.invalid("must be less than or equal to completions");
        }
        if failed.int_or_0() > MAX_PARALLEL {
            failed.invalid(&format!("must be less than or equal to {MAX_PARALLEL}"));
        }
        if completions.int_or_0() > MAX_PARALLEL && per_index.is_set() {
            let with = "when completions are above 100000 and used with backoff limit per index";
            if !failed.is_set() {
                failed.required("must be specified when completions is above 100000");
            }
            if parallelism.int_or_0() > 10_000 {
                parallelism.invalid(&format!("must be less than or equal to 10000 {with}"));
            }
            if failed.int_or_0() > 10_000 {
                failed.invalid(&format!("must be less than or equal to 10000 {with}"));
            }
        }
    } else if matches!(mode.str(), "" | "NonIndexed") {
        for node in [per_index, failed] {
            if node.is_set() {
                node.invalid("requires indexed completion mode");
            }
        }
    }
}

fn pod_failure_policy(spec: Node<'_>, policy: Node<'_>) {
    let rules = policy.get("rules");
    if rules.len() > 20 {
        rules.too_many(20);
    }
    let pod = spec.get("template").get("spec");
    let containers: HashSet<&str> =
        ["containers", "initContainers"].iter().flat_map(|l| pod.get(l).items()).map(|c| c.get("name").str()).collect();
    for rule in rules.items() {
        let action = rule.get("action");
        match action.str() {
            "" => action.required("valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
            "FailIndex" if !spec.get("backoffLimitPerIndex").is_set() => {
                action.invalid("requires the backoffLimitPerIndex to be set");
            }
            _ => action.one_of(&["Count", "FailIndex", "FailJob", "Ignore"]),
        }
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if codes.is_set() {
            exit_codes(codes, &containers);
        }
        for condition in conditions.items() {
            condition.get("type").check(names::qualified_name);
            let status = condition.get("status");
            if status.is_empty() {
                status.required("valid values: [\"False\" \"True\" \"Unknown\"]");
            } else {
                status.one_of(&["False", "True", "Unknown"]);
            }
        }
        match (codes.is_set(), !conditions.is_empty()) {
            (true, true) => rule.wrong("specifying both OnExitCodes and OnPodConditions is not supported"),
            (false, false) => rule.wrong("specifying one of OnExitCodes and OnPodConditions is required"),
            _ => {}
        }
    }
}

fn exit_codes(codes: Node<'_>, containers: &HashSet<&str>) {
    let operator = codes.get("operator");
    if operator.is_empty() {
        operator.required("valid values: [\"In\" \"NotIn\"]");
    } else {
        operator.one_of(&["In", "NotIn"]);
    }
    let container = codes.get("containerName");
    if container.is_set() && !containers.contains(container.str()) {
        container.invalid("must be one of the container or initContainer names in the pod template");
    }
    let values = codes.get("values");
    if values.is_empty() {
        values.invalid_as(if values.is_set() { "[]" } else { "null" }, "at least one value is required");
    } else if values.len() > 255 {
        values.too_many(255);
    }
    let mut seen = HashSet::new();
    let mut last = i64::MIN;
    let mut ordered = true;
    for value in values.items() {
        let code = value.int_or_0();
        if operator.str() == "In" && code == 0 {
            value.invalid("must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            value.duplicate();
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        values.invalid("must be ordered");
    }
}

fn success_policy(spec: Node<'_>) {
    let policy = spec.get("successPolicy");
    if !policy.is_set() {
        return;
    }
    if spec.get("completionMode").str() != "Indexed" {
        return policy.invalid_as(internal::shown("SuccessPolicy", policy.value), "requires indexed completion mode");
    }
    let rules = policy.get("rules");
    if rules.is_empty() {
        rules.required("at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        rules.too_many(20);
    }
    let completions = spec.get("completions").int_or_0();
    for rule in rules.items() {
        let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            rule.required("at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut named = 0;
        if indexes.is_set() {
            if indexes.str().len() > MAX_INDEXES {
                indexes.too_long(MAX_INDEXES);
            }
            match job_status::count(indexes.str(), completions) {
                Ok(number) => named = number,
                Err(why) => indexes.invalid_str(&format!("error parsing succeededIndexes: {why}")),
            }
        }
        count.non_negative();
        let at_most = |max: i64, what: &str| {
            if count.int_or_0() > max {
                count.invalid(&format!("must be less than or equal to {max} (the number of {what})"));
            }
        };
        at_most(completions, "specified completions");
        if indexes.is_set() {
            at_most(named, "indexes in the specified succeededIndexes field");
        }
    }
}

fn job_update(new: Node<'_>, old: Node<'_>) {
    let (spec, old_spec) = (new.get("spec"), old.get("spec"));
    selected_job_spec(spec);
    let (completions, was) = (spec.get("completions"), old_spec.get("completions"));
    if spec.get("completionMode").str() != "Indexed" {
        completions.immutable(was);
    } else if !completions.same(was) && completions.is_set() && !completions.same(spec.get("parallelism")) {
        completions.invalid("can only be modified in tandem with spec.parallelism");
    }
    let selector = spec.get("selector");
    if !selector.same(old_spec.get("selector")) {
        selector.invalid_as(selector_shown(selector.value), "field is immutable");
    }
    template_kept(spec, old);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        let node = spec.get(field);
        if !node.same(old_spec.get(field)) {
            let ty = match field {
                "podFailurePolicy" => "PodFailurePolicy",
                "successPolicy" => "SuccessPolicy",
                _ => "",
            };
            let shown = if node.is_set() { internal::shown(ty, node.value) } else { "null".to_owned() };
            node.invalid_as(shown, "field is immutable");
        }
    }
}

/// The template stays as it is, but where to run and what it needs may change while the job is suspended and has no pods.
fn template_kept(spec: Node<'_>, old: Node<'_>) {
    let (template, mut was) = (spec.get("template"), old.get("spec").get("template").value.clone());
    let status = old.get("status");
    let suspended = old.get("spec").get("suspend").bool();
    let idle = !status.get("startTime").is_set()
        || status
            .get("conditions")
            .items()
            .any(|c| c.get("type").str() == "Suspended" && c.get("status").str() == "True");
    let open = suspended && idle && status.get("active").int_or_0() == 0;
    if open {
        let now = template.value;
        let copy = |was: &mut Value, at: &str, field: &str| {
            let new = now.pointer(at).and_then(|v| v.get(field)).cloned();
            if let Some(map) = was.pointer_mut(at).and_then(Value::as_object_mut) {
                match new {
                    Some(value) => map.insert(field.to_owned(), value),
                    None => map.remove(field),
                };
            }
        };
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            copy(&mut was, "/spec", field);
        }
        if was.get("metadata").is_none() && now.get("metadata").is_some() {
            was["metadata"] = json!({});
        }
        for field in ["annotations", "labels"] {
            copy(&mut was, "/metadata", field);
        }
        let others_same = ["podAffinity", "podAntiAffinity"].iter().all(|field| {
            let of = |v: &Value| v.pointer(&format!("/spec/affinity/{field}")).cloned().unwrap_or(Value::Null);
            same(&of(now), &of(&was))
        });
        if others_same {
            copy(&mut was, "/spec", "affinity");
        }
        for list in ["containers", "initContainers"] {
            let count = |v: &Value| v["spec"][list].as_array().map_or(0, Vec::len);
            if count(now) == count(&was) {
                for i in 0..count(now) {
                    copy(&mut was, &format!("/spec/{list}/{i}"), "resources");
                }
            }
        }
    }
    // Upstream looks at the pods alone while their needs may change.
    let pods = template.get("spec");
    if open && !same(pods.value, was.get("spec").unwrap_or(&Value::Null)) {
        pods.invalid_as(internal::shown("PodSpec", pods.value), "field is immutable");
    } else if !open && !same(template.value, &was) {
        template.invalid_as(internal::shown("PodTemplateSpec", template.value), "field is immutable");
    }
}

fn cron_job(root: Node<'_>) {
    cron_job_spec(root.get("spec"), None);
    let name = root.get("metadata").get("name");
    if name.str().len() > 52 {
        name.invalid("must be no more than 52 characters");
    }
}

fn cron_job_spec(spec: Node<'_>, old: Option<Node<'_>>) {
    let schedule = spec.get("schedule");
    if schedule.is_empty() {
        schedule.required("");
    } else {
        if let Err(complaint) = cron::check(schedule.str()) {
            schedule.invalid(&complaint);
        }
        if schedule.str().contains("TZ") {
            let had = old.is_some_and(|old| old.get("schedule").str().contains("TZ"));
            if !had {
                schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
            } else if spec.get("timeZone").is_set() {
                schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule");
            }
        }
    }
    spec.get("startingDeadlineSeconds").non_negative();
    if old.is_none_or(|old| !old.get("timeZone").same(spec.get("timeZone"))) {
        time_zone(spec.get("timeZone"));
    }
    spec.get("concurrencyPolicy").required_one_of(&["Allow", "Forbid", "Replace"]);
    let job = spec.get("jobTemplate").get("spec");
    job_spec(job);
    let selector = job.get("selector");
    if selector.is_set() {
        selector.invalid_as(selector_shown(selector.value), "`selector` will be auto-generated");
    }
    if job.get("manualSelector").bool() {
        job.get("manualSelector").not_supported_as("true", &["nil", "false"]);
    }
    spec.get("successfulJobsHistoryLimit").non_negative();
    spec.get("failedJobsHistoryLimit").non_negative();
}

fn time_zone(zone: Node<'_>) {
    if !zone.is_set() {
        return;
    }
    if zone.str().is_empty() {
        return zone.invalid("timeZone must be nil or non-empty string");
    }
    let good = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+'))
    };
    let local = zone.str().eq_ignore_ascii_case("local");
    if !zone.str().split('/').all(good) || !local && !cron::is_zone(zone.str()) {
        return zone.invalid(&format!("unknown time zone {}", zone.str()));
    }
    if local {
        zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
}

/// `example.com/path`.
pub(super) fn domain_prefixed_path(at: Node<'_>) {
    if at.str().is_empty() {
        return at.required("");
    }
    let (host, path) = match at.str().split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => (host, path),
        _ => return at.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"),
    };
    for complaint in names::dns1123_subdomain(host) {
        at.invalid_text(host, &complaint);
    }
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        at.invalid_text(path, "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')");
    }
}
