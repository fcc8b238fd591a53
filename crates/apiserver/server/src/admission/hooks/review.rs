//! AdmissionReview: the question as it is sent, and what an answer says. No I/O.

use base64::{Engine, engine::general_purpose::STANDARD};
use schema::status::Status;
use serde_json::{Value, json};

use super::Form;
use crate::admission::question::Question;

const GROUP: &str = "admission.k8s.io";

pub fn question(uid: &str, version: &str, question: &Question<'_>, form: &Form) -> Value {
    let mut request = question.request(&form.kind);
    request["uid"] = uid.into();
    request["object"] = form.object.clone().unwrap_or(Value::Null);
    request["oldObject"] = form.old.clone().unwrap_or(Value::Null);
    json!({"kind": "AdmissionReview", "apiVersion": format!("{GROUP}/{version}"), "request": request})
}

#[derive(Debug, Default)]
pub struct Answer {
    /// A JSON patch, not yet decoded.
    pub patch: Option<Vec<u8>>,
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
    pub refusal: Option<Status>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Bytes come in base64 or, as kube-rs writes them, as a list of numbers.
fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    let wrong = || "response.patch: neither base64 nor bytes".to_owned();
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => STANDARD.decode(text).map_err(|_| wrong()),
        Value::Array(list) => {
            let byte = |v: &Value| v.as_u64().and_then(|n| u8::try_from(n).ok()).ok_or_else(wrong);
            list.iter().map(byte).collect()
        }
        _ => Err(wrong()),
    }
}

/// What a webhook answered, or why that is no answer.
pub fn answer(name: &str, uid: &str, version: &str, mutating: bool, review: &Value) -> Result<Answer, String> {
    let response = &review["response"];
    let strict = version == "v1";
    if strict {
        let (got, kind) = (text(&review["apiVersion"]), text(&review["kind"]));
        if got != format!("{GROUP}/{version}") || kind != "AdmissionReview" {
            return Err(format!(
                "expected webhook response of {GROUP}/{version}, Kind=AdmissionReview, got {got}, Kind={kind}"
            ));
        }
    }
    if !response.is_object() {
        return Err("webhook response was absent".to_owned());
    }
    if strict && text(&response["uid"]) != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", text(&response["uid"])));
    }
    let patch = bytes(&response["patch"])?;
    let ty = &response["patchType"];
    if strict && !mutating && !patch.is_empty() {
        return Err("validating webhook may not return response.patch".to_owned());
    }
    if strict && !mutating && ty.is_string() {
        return Err("validating webhook may not return response.patchType".to_owned());
    }
    if strict && mutating {
        match (patch.is_empty(), ty.as_str()) {
            (false, None) => return Err("webhook returned response.patch but not response.patchType".to_owned()),
            (true, Some(_)) => return Err("webhook returned response.patchType but not response.patch".to_owned()),
            (false, Some(other)) if other != "JSONPatch" => {
                return Err(format!("webhook returned invalid response.patchType of {other:?}"));
            }
            _ => {}
        }
    }
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    Ok(Answer {
        patch: Some(patch).filter(|patch| mutating && !patch.is_empty()),
        warnings: response["warnings"].as_array().into_iter().flatten().map(|w| text(w).to_owned()).collect(),
        annotations: annotations.map(|(key, value)| (key.clone(), text(value).to_owned())).collect(),
        refusal: (response["allowed"] != true).then(|| refusal(name, &response["status"])),
    })
}

/// A refusal as the client is told of it: never a success, and always by whom.
fn refusal(name: &str, result: &Value) -> Status {
    let denied = format!("admission webhook {name:?} denied the request");
    let code = result["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
    let (message, reason) = (text(&result["message"]), text(&result["reason"]));
    let message = match (message, reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    let code = if (400..600).contains(&code) { code } else { 400 };
    Status { message, ..Status::from_value(code, result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(mutating: bool, response: Value) -> Result<Answer, String> {
        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        answer("a.b.c", "u", "v1", mutating, &review)
    }

    #[test]
    fn answers_that_are_none() {
        for (mutating, response, want) in [
            (false, Value::Null, "webhook response was absent"),
            (false, json!({"uid": "v", "allowed": true}), "expected response.uid=\"u\", got \"v\""),
            (true, json!({"uid": "u", "patch": "W10="}), "webhook returned response.patch but not response.patchType"),
            (
                true,
                json!({"uid": "u", "patchType": "JSONPatch"}),
                "webhook returned response.patchType but not response.patch",
            ),
            (
                true,
                json!({"uid": "u", "patch": "W10=", "patchType": "x"}),
                "webhook returned invalid response.patchType of \"x\"",
            ),
            (false, json!({"uid": "u", "patch": "W10="}), "validating webhook may not return response.patch"),
        ] {
            assert_eq!(judged(mutating, response).unwrap_err(), want);
        }
        let other = json!({"kind": "Pod", "apiVersion": "v1", "response": {}});
        let want = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got v1, Kind=Pod";
        assert_eq!(answer("a", "u", "v1", false, &other).unwrap_err(), want);
    }

    #[test]
    fn refusals_name_who_refused() {
        for (result, code, reason, message) in [
            (Value::Null, 400, "", "admission webhook \"a.b.c\" denied the request without explanation"),
            (json!({"message": "no"}), 400, "", "admission webhook \"a.b.c\" denied the request: no"),
            (
                json!({"reason": "Forbidden", "code": 403}),
                403,
                "Forbidden",
                "admission webhook \"a.b.c\" denied the request: Forbidden",
            ),
            (
                json!({"code": 200, "message": "x", "reason": "y"}),
                400,
                "",
                "admission webhook \"a.b.c\" denied the request: x",
            ),
        ] {
            let status =
                judged(false, json!({"uid": "u", "allowed": false, "status": result})).unwrap().refusal.unwrap();
            assert_eq!((status.code, status.reason, status.message.as_str()), (code, reason, message));
        }
        let fine = judged(
            true,
            json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch",
            "warnings": ["w"], "auditAnnotations": {"k": "v"}}),
        )
        .unwrap();
        assert_eq!((fine.patch.as_deref(), fine.warnings.len(), fine.annotations.len()), (Some(&b"[]"[..]), 1, 1));
        assert!(fine.refusal.is_none());
        let numbers = json!({"uid": "u", "allowed": true, "patch": [91, 93], "patchType": "JSONPatch"});
        assert_eq!(judged(true, numbers).unwrap().patch.as_deref(), Some(&b"[]"[..]));
    }
}
