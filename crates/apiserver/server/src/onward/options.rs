//! What a request to a pod's container says in its query, as the objects that upstream reads it into, and what a kubelet's
//! refusal of a log means. Pure.

use request::Query;
use schema::field::FieldError;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use crate::call::Call;

/// `PodExecOptions` and the like.
pub fn of(call: &Call) -> Result<Value> {
    let (query, target) = (&call.query, &call.target);
    let mut options = json!({"apiVersion": "v1"});
    match target.subresource.as_str() {
        "portforward" => {
            options["kind"] = "PodPortForwardOptions".into();
            let wrong =
                |text: &str| format!("cannot convert to []int32: strconv.ParseUint: parsing {text:?}: invalid syntax");
            let number = |text: &str| text.parse::<u16>().map_err(|_| Status::bad_request(wrong(text)));
            let all = query.all("ports").flat_map(|ports| ports.split(',')).filter(|text| !text.is_empty());
            let ports = all.map(number).collect::<Result<Vec<u16>>>()?;
            if !ports.is_empty() {
                options["ports"] = ports.into();
            }
        }
        "proxy" => {
            let kind = format!("{}ProxyOptions", call.kind.name());
            options["kind"] = kind.into();
            options["path"] = target.rest.iter().map(|part| format!("/{part}")).collect::<String>().into();
        }
        sub => {
            options["kind"] = if sub == "exec" { "PodExecOptions" } else { "PodAttachOptions" }.into();
            for flag in ["stdin", "stdout", "stderr", "tty"] {
                if query.flag(flag) {
                    options[flag] = true.into();
                }
            }
            let container = query.get("container");
            if !container.is_empty() {
                options["container"] = container.into();
            }
            if sub == "exec" {
                options["command"] = query.all("command").collect::<Vec<_>>().into();
            }
        }
    }
    Ok(options)
}

/// What a kubelet is asked for by these options.
pub fn to_kubelet(options: &Value) -> String {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for command in options["command"].as_array().into_iter().flatten() {
        pairs.push(("command", command.as_str().unwrap_or_default().to_owned()));
    }
    for (flag, name) in [("stderr", "error"), ("stdin", "input"), ("stdout", "output"), ("tty", "tty")] {
        if options[flag] == true {
            pairs.push((name, "1".to_owned()));
        }
    }
    if let Some(ports) = options["ports"].as_array() {
        pairs.push(("port", ports.iter().map(Value::to_string).collect::<Vec<_>>().join(",")));
    }
    encoded(&pairs)
}

/// What a kubelet is asked for a log.
pub fn log(query: &Query, pod: &str) -> Result<String> {
    let number = |name: &str| match query.get(name) {
        "" => Ok(None),
        text => text.parse::<i64>().map(Some).map_err(|_| bad_number(text)),
    };
    let (tail, limit, since) = (number("tailLines")?, number("limitBytes")?, number("sinceSeconds")?);
    let at = match query.get("sinceTime") {
        "" => None,
        text => Some(text.parse::<jiff::Timestamp>().map_err(|_| {
            let form = "2006-01-02T15:04:05Z07:00";
            Status::bad_request(format!("parsing time {text:?} as {form:?}: cannot parse {text:?} as \"2006\""))
        })?),
    };
    let mut errors = Vec::new();
    if let Some(tail) = tail.filter(|tail| *tail < 0) {
        errors.push(FieldError::invalid("tailLines", &tail.into(), "must be greater than or equal to 0"));
    }
    if let Some(limit) = limit.filter(|limit| *limit < 1) {
        errors.push(FieldError::invalid("limitBytes", &limit.into(), "must be greater than 0"));
    }
    match (since, at) {
        (Some(_), Some(_)) => {
            errors.push(FieldError::forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
        }
        (Some(since), None) if since < 1 => {
            errors.push(FieldError::invalid("sinceSeconds", &since.into(), "must be greater than 0"));
        }
        _ => {}
    }
    if !query.get("stream").is_empty() {
        errors.push(FieldError::forbidden("stream", "may not be specified"));
    }
    if !errors.is_empty() {
        return Err(Status::invalid("", "PodLogOptions", pod, &errors));
    }
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for flag in ["follow", "previous", "timestamps"] {
        if query.flag(flag) {
            pairs.push((flag, "true".to_owned()));
        }
    }
    for (name, value) in [("limitBytes", limit), ("sinceSeconds", since), ("tailLines", tail)] {
        if let Some(value) = value {
            pairs.push((name, value.to_string()));
        }
    }
    if let Some(at) = at {
        pairs.push(("sinceTime", clock::at(at.as_second())));
    }
    pairs.sort();
    Ok(encoded(&pairs))
}

fn bad_number(text: &str) -> Status {
    Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
}

fn encoded(pairs: &[(&str, String)]) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(name);
        out.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
                b' ' => out.push('+'),
                other => {
                    use std::fmt::Write;
                    let _ = write!(out, "%{other:02X}");
                }
            }
        }
    }
    out
}

/// A kubelet's refusal of a log in upstream's words.
pub fn log_failure(code: u16, text: &str, pod: &str) -> Status {
    let generic = |reason, message: &str| {
        let message = format!("{message} ( pods/log {pod})");
        Status::new(code, reason, message).about("", "pods/log", pod)
    };
    match code {
        500 => Status::internal(text),
        400 => Status::bad_request(text),
        401 => generic("Unauthorized", "the server has asked for the client to provide credentials"),
        403 => generic("Forbidden", text),
        404 => generic("NotFound", "the server could not find the requested resource"),
        501.. => generic(
            "InternalError",
            &format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        ),
        _ => generic(
            "",
            &format!("the server responded with the status code {code} but did not return more information"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_asked_for_as_upstream_does() {
        for (query, expected) in [
            ("", Ok("")),
            ("follow=true&previous=false&timestamps=1", Ok("follow=true&timestamps=true")),
            ("tailLines=0&limitBytes=10&sinceSeconds=5&container=c", Ok("limitBytes=10&sinceSeconds=5&tailLines=0")),
            ("sinceTime=2026-01-02T03:04:05%2B01:00", Ok("sinceTime=2026-01-02T02%3A04%3A05Z")),
            ("tailLines=x", Err("strconv.ParseInt: parsing \"x\": invalid syntax")),
            ("tailLines=-1", Err("tailLines: Invalid value: -1: must be greater than or equal to 0")),
            ("limitBytes=0", Err("limitBytes: Invalid value: 0: must be greater than 0")),
            ("sinceSeconds=0", Err("sinceSeconds: Invalid value: 0: must be greater than 0")),
            ("sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", Err("at most one of `sinceTime` or `sinceSeconds`")),
            ("sinceTime=yesterday", Err("cannot parse \"yesterday\" as \"2006\"")),
            ("stream=All", Err("stream: Forbidden: may not be specified")),
        ] {
            match (log(&Query::parse(Some(query)), "p"), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{query}"),
                (Err(status), Err(expected)) => {
                    assert!(status.message.contains(expected), "{query}: {}", status.message)
                }
                (got, _) => panic!("{query}: {got:?}"),
            }
        }
    }

    #[test]
    fn commands_arrive_whole() {
        let options = json!({"command": ["sh", "-c", "echo ä & \"x\"=1"], "stdin": true, "stdout": true, "tty": false});
        assert_eq!(to_kubelet(&options), "command=sh&command=-c&command=echo+%C3%A4+%26+%22x%22%3D1&input=1&output=1");
        assert_eq!(to_kubelet(&json!({"ports": [80, 443]})), "port=80%2C443");
    }

    #[test]
    fn refusals_of_kubelets_have_upstreams_words() {
        let status = log_failure(404, "x", "web");
        assert_eq!(status.message, "the server could not find the requested resource ( pods/log web)");
        assert_eq!(log_failure(400, "container is waiting", "web").message, "container is waiting");
        assert_eq!(log_failure(500, "no", "web").message, "Internal error occurred: no");
    }
}
