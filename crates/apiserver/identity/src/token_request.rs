//! TokenRequest: a token for a ServiceAccount, bound to a pod, a node or a secret if wanted.

use schema::catalogue::split_api_version;
use schema::field::FieldError;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use super::{
    reviews::time,
    token::{Claims, Reference, Tokens},
};

const GROUP: &str = "authentication.k8s.io";
const SHORTEST: i64 = 10 * 60;
pub const LONGEST: i64 = 1 << 32;
const DEFAULT: i64 = 60 * 60;
/// What pods ask for by default. They get far longer, for programs that never read the renewed token.
const OF_PODS: i64 = 60 * 60 + 7;
const EXTENDED: i64 = 365 * 24 * 60 * 60;

/// Finds objects of the account's workspace.
pub trait Objects {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value>;
}

/// Answers a request for a token of the account `name`.
pub fn answer(
    request: &Value,
    cluster: &str,
    namespace: &str,
    name: &str,
    objects: &dyn Objects,
    tokens: &Tokens,
    now: i64,
) -> Result<Value> {
    matches_url(request, "name", name)?;
    matches_url(request, "namespace", namespace)?;
    let account = get(objects, "serviceaccounts", namespace, name)?;
    let uid = text(&account, "/metadata/uid");
    let given = text(request, "/metadata/uid");
    if !given.is_empty() && given != uid {
        let why =
            format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
        return Err(Status::conflict(GROUP, "TokenRequest", name, &why));
    }
    let seconds = match request.pointer("/spec/expirationSeconds") {
        None | Some(Value::Null) => DEFAULT,
        Some(seconds) => seconds.as_i64().unwrap_or_default(),
    };
    check_duration(seconds)?;
    let asked = request.pointer("/spec/audiences").and_then(Value::as_array).into_iter().flatten();
    let asked: Vec<String> = asked.filter_map(Value::as_str).map(str::to_owned).collect();
    let audiences = if asked.is_empty() { tokens.audiences().to_vec() } else { asked };

    let mut claims = Claims {
        cluster: cluster.to_owned(),
        namespace: namespace.to_owned(),
        account: reference(&account),
        audiences: audiences.clone(),
        issued: now,
        expires: now.saturating_add(seconds),
        id: uuid::Uuid::new_v4().to_string(),
        ..Claims::default()
    };
    let bound = request.pointer("/spec/boundObjectRef").filter(|r| r.is_object());
    if let Some(bound) = bound {
        bind(&mut claims, bound, name, objects)?;
    }
    let for_this_server = audiences.iter().all(|a| tokens.audiences().contains(a));
    if claims.pod.is_some() && seconds == OF_PODS && for_this_server {
        claims.warn_after = Some(claims.expires);
        claims.expires = now.saturating_add(EXTENDED);
    }
    let token = tokens.issue(&claims).map_err(Status::internal)?;

    let mut metadata = request.get("metadata").filter(|m| m.is_object()).cloned().unwrap_or_else(|| json!({}));
    metadata["name"] = name.into();
    metadata["namespace"] = namespace.into();
    metadata["uid"] = uid.into();
    metadata["creationTimestamp"] = time(now).into();
    Ok(json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": metadata,
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
        "status": {"token": token, "expirationTimestamp": time(now.saturating_add(seconds))},
    }))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn reference(object: &Value) -> Reference {
    let part = |pointer: &str| text(object, pointer).to_owned();
    Reference { name: part("/metadata/name"), uid: part("/metadata/uid") }
}

fn get(objects: &dyn Objects, resource: &str, namespace: &str, name: &str) -> Result<Value> {
    objects.get(resource, namespace, name).ok_or_else(|| Status::not_found("", resource, name))
}

fn matches_url(request: &Value, field: &str, expected: &str) -> Result<()> {
    let given = text(request, &format!("/metadata/{field}"));
    if given.is_empty() || given == expected {
        return Ok(());
    }
    let detail = format!("must match the service account {field} if specified");
    let error = FieldError::invalid(format!("metadata.{field}"), &given.into(), &detail);
    Err(Status::invalid(GROUP, "TokenRequest", expected, &vec![error]))
}

fn check_duration(seconds: i64) -> Result<()> {
    let detail = match seconds {
        i64::MIN..SHORTEST => "may not specify a duration less than 10 minutes",
        SHORTEST..=LONGEST => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), detail);
    Err(Status::invalid(GROUP, "TokenRequest", "", &vec![error]))
}

fn bind(claims: &mut Claims, bound: &Value, account: &str, objects: &dyn Objects) -> Result<()> {
    let (group, version) = split_api_version(text(bound, "/apiVersion"));
    let (kind, name) = (text(bound, "/kind"), text(bound, "/name"));
    let object = match (group, kind) {
        ("", "Pod") => {
            let pod = get(objects, "pods", &claims.namespace, name)?;
            if text(&pod, "/spec/serviceAccountName") != account {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
                )));
            }
            claims.pod = Some(reference(&pod));
            let node = text(&pod, "/spec/nodeName");
            if !node.is_empty() {
                // A node that is not known is named all the same.
                let unknown = || Reference { name: node.to_owned(), uid: String::new() };
                claims.node = Some(objects.get("nodes", "", node).map_or_else(unknown, |node| reference(&node)));
            }
            pod
        }
        ("", "Node") => {
            let node = get(objects, "nodes", "", name)?;
            claims.node = Some(reference(&node));
            node
        }
        ("", "Secret") => {
            let secret = get(objects, "secrets", &claims.namespace, name)?;
            claims.secret = Some(reference(&secret));
            secret
        }
        _ => {
            let kind = format!("{group}/{version}, Kind={kind}");
            return Err(Status::bad_request(format!("cannot bind token to object of type {kind}")));
        }
    };
    let given = text(bound, "/uid");
    if !given.is_empty() && given != text(&object, "/metadata/uid") {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(Status::conflict(group, kind, name, &why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token;

    struct Some3;

    impl Objects for Some3 {
        fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
            let object = |uid: &str| json!({"metadata": {"name": name, "uid": uid}});
            match (resource, namespace, name) {
                ("serviceaccounts", "ns", "robot") => Some(object("u1")),
                ("pods", "ns", "p") => {
                    let mut pod = object("u2");
                    pod["spec"] = json!({"serviceAccountName": "robot", "nodeName": "n"});
                    Some(pod)
                }
                ("pods", "ns", "other") => Some(object("u3")),
                _ => None,
            }
        }
    }

    #[test]
    fn requests() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = token::tests::tokens(dir.path());
        let ask = |request: Value, name: &str| answer(&request, "root", "ns", name, &Some3, &tokens, 1000);
        let claims_of = |answer: &Value, audience: &str| match tokens
            .verify(text(answer, "/status/token"), &[audience.to_owned()], 1000)
            .unwrap()
        {
            token::Verified::Bound(claims) => claims,
            other => panic!("{other:?}"),
        };

        let plain = ask(json!({}), "robot").unwrap();
        assert_eq!(
            plain["spec"],
            json!({"audiences": [token::ISSUER], "expirationSeconds": 3600, "boundObjectRef": null})
        );
        assert_eq!(plain["metadata"]["uid"], "u1");
        assert_eq!(plain["status"]["expirationTimestamp"], "1970-01-01T01:16:40Z");
        assert_eq!(claims_of(&plain, token::ISSUER).expires, 4600);

        let audience = ask(json!({"spec": {"audiences": ["a"], "expirationSeconds": 700}}), "robot").unwrap();
        assert_eq!(claims_of(&audience, "a").audiences, ["a"]);

        let bound = json!({"spec": {"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u2"}}});
        let claims = claims_of(&ask(bound.clone(), "robot").unwrap(), token::ISSUER);
        assert_eq!((claims.pod.unwrap().uid, claims.node.unwrap().name), ("u2".to_owned(), "n".to_owned()));
        assert_eq!((claims.warn_after, claims.expires), (Some(4607), 1000 + EXTENDED));

        let mut wrong_uid = bound.clone();
        wrong_uid["spec"]["boundObjectRef"]["uid"] = json!("u9");
        let mut wrong_pod = bound.clone();
        wrong_pod["spec"]["boundObjectRef"] = json!({"kind": "Pod", "apiVersion": "v1", "name": "other"});
        let mut no_pod = bound;
        no_pod["spec"]["boundObjectRef"]["name"] = json!("none");
        for (request, name, code, message) in [
            (json!({}), "nosuch", 404, "serviceaccounts \"nosuch\" not found"),
            (json!({"metadata": {"name": "x"}}), "robot", 422, "must match the service account name"),
            (
                json!({"spec": {"expirationSeconds": 10}}),
                "robot",
                422,
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 10: may not \
                 specify a duration less than 10 minutes",
            ),
            (json!({"spec": {"expirationSeconds": LONGEST + 1}}), "robot", 422, "larger than 2^32 seconds"),
            (wrong_uid, "robot", 409, "does not match the UID in record"),
            (wrong_pod, "robot", 400, "different serviceaccount name"),
            (no_pod, "robot", 404, "pods \"none\" not found"),
            (
                json!({"spec": {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1"}}}),
                "robot",
                400,
                "/v1, Kind=ConfigMap",
            ),
        ] {
            let status = ask(request, name).unwrap_err();
            assert_eq!(status.code, code, "{status}");
            assert!(status.message.contains(message), "{status}");
        }
    }
}
