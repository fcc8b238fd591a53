//! The reviews: who am I, is this token good, may somebody do something, what may I do. Each takes the request's object and
//! answers the same kind of object with a status.

use jiff::Timestamp;
use schema::field::{FieldError, FieldErrors};
use schema::names;
use schema::selector::FieldSelector;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use super::{
    authenticate::{Authenticator, Lookup, User},
    authorize::{Attributes, Authorizer, Decision},
    rbac::{Roles, listed},
    token::Refused,
};

const AUTHENTICATION: &str = "authentication.k8s.io/v1";
const AUTHORIZATION: &str = "authorization.k8s.io/v1";

/// A time as objects have it.
pub(super) fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// Who am I?
pub fn self_subject_review(user: &User, now: i64) -> Value {
    json!({
        "kind": "SelfSubjectReview", "apiVersion": AUTHENTICATION,
        "metadata": {"creationTimestamp": time(now)},
        "status": {"userInfo": user.info()},
    })
}

/// Is this token good?
pub fn token_review(
    review: &Value,
    authenticator: &Authenticator,
    cluster: &str,
    lookup: &dyn Lookup,
    now: i64,
) -> Result<Value> {
    let token = text(review, "/spec/token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let asked: Vec<String> = strings(review, "/spec/audiences");
    let audiences = if asked.is_empty() { authenticator.tokens().audiences() } else { &asked };
    let status = match authenticator.token_user(token, cluster, audiences, lookup, now) {
        Ok((user, audiences)) => json!({"authenticated": true, "user": user.info(), "audiences": audiences}),
        Err(Refused::Foreign) => json!({"user": {}, "error": "invalid bearer token"}),
        Err(refused) => json!({"user": {}, "error": format!("[invalid bearer token, {refused}]")}),
    };
    Ok(answer(review, "TokenReview", AUTHENTICATION, status))
}

/// May I do that?
pub fn self_subject_access_review(review: &Value, user: &User, authorizer: &dyn Authorizer) -> Result<Value> {
    let mut errors = access_errors(review, false);
    no_metadata(review, &mut errors, false);
    check(errors)?;
    let decision = decide(review, user, authorizer);
    Ok(answer(review, "SelfSubjectAccessReview", AUTHORIZATION, decision))
}

/// May they do that?
pub fn subject_access_review(review: &Value, authorizer: &dyn Authorizer) -> Result<Value> {
    let mut errors = access_errors(review, true);
    no_metadata(review, &mut errors, false);
    check(errors)?;
    let decision = decide(review, &subject(review), authorizer);
    Ok(answer(review, "SubjectAccessReview", AUTHORIZATION, decision))
}

/// May they do that in this namespace?
pub fn local_subject_access_review(review: &Value, namespace: &str, authorizer: &dyn Authorizer) -> Result<Value> {
    let mut review = review.clone();
    if text(&review, "/metadata/namespace").is_empty() {
        if !review["metadata"].is_object() {
            review["metadata"] = json!({});
        }
        review["metadata"]["namespace"] = namespace.into();
    }
    let given = text(&review, "/metadata/namespace");
    let mut errors = access_errors(&review, true);
    no_metadata(&review, &mut errors, true);
    let wanted = text(&review, "/spec/resourceAttributes/namespace");
    if has(&review, "/spec/resourceAttributes") && wanted != given {
        let path = "spec.resourceAttributes.namespace";
        errors.push(FieldError::invalid(path, &wanted.into(), "must match metadata.namespace"));
    }
    if has(&review, "/spec/nonResourceAttributes") {
        let path = "spec.nonResourceAttributes";
        errors.push(FieldError::invalid(path, &path_attributes(&review), "disallowed on this kind of request"));
    }
    check(errors)?;
    if given != namespace {
        let message = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(Status::bad_request(message));
    }
    let decision = decide(&review, &subject(&review), authorizer);
    Ok(answer(&review, "LocalSubjectAccessReview", AUTHORIZATION, decision))
}

/// What may I do in this namespace?
pub fn self_subject_rules_review(review: &Value, user: &User, roles: &Roles) -> Result<Value> {
    let namespace = text(review, "/spec/namespace");
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (rules, errors) = roles.rules_for(user, namespace);
    let (resource_rules, path_rules) = listed(&rules);
    let mut status = json!({"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": false});
    if super::node_authorizer::node_of(user).is_some() {
        status["incomplete"] = true.into();
        status["evaluationError"] = "node authorizer does not support user rule resolution".into();
    } else if !errors.is_empty() {
        status["evaluationError"] = errors.join(", ").into();
    }
    Ok(json!({
        "kind": "SelfSubjectRulesReview", "apiVersion": AUTHORIZATION, "metadata": {}, "spec": {}, "status": status,
    }))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn strings(value: &Value, pointer: &str) -> Vec<String> {
    let items = value.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn has(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).is_some_and(|v| !v.is_null())
}

/// The review with its answer.
fn answer(review: &Value, kind: &str, api_version: &str, status: Value) -> Value {
    let part = |name: &str| review.get(name).filter(|v| v.is_object()).cloned().unwrap_or_else(|| json!({}));
    json!({
        "kind": kind, "apiVersion": api_version, "metadata": part("metadata"), "spec": part("spec"), "status": status,
    })
}

/// As upstream's internal type writes itself.
fn path_attributes(review: &Value) -> Value {
    let part = |name: &str| text(review, &format!("/spec/nonResourceAttributes/{name}"));
    json!({"Path": part("path"), "Verb": part("verb")})
}

fn check(errors: FieldErrors) -> Result<()> {
    // Upstream names no kind here.
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("authorization.k8s.io", "", "", &errors)) }
}

fn access_errors(review: &Value, with_subject: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (resource, path) = (has(review, "/spec/resourceAttributes"), has(review, "/spec/nonResourceAttributes"));
    if resource && path {
        let detail = "cannot be specified in combination with resourceAttributes";
        errors.push(FieldError::invalid("spec.nonResourceAttributes", &path_attributes(review), detail));
    }
    if !resource && !path {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, detail));
    }
    for selector in ["fieldSelector", "labelSelector"] {
        selector_errors(&review["spec"]["resourceAttributes"][selector], selector, &mut errors);
    }
    if with_subject && text(review, "/spec/user").is_empty() && strings(review, "/spec/groups").is_empty() {
        errors.push(FieldError::invalid("spec.user", &"".into(), "at least one of user or group must be specified"));
    }
    errors
}

/// A selector is given as a text or as a list, and not as both or neither.
fn selector_errors(selector: &Value, name: &str, errors: &mut FieldErrors) {
    if !selector.is_object() {
        return;
    }
    let path = format!("spec.resourceAttributes.{name}");
    let raw = text(selector, "/rawSelector");
    let listed = selector["requirements"].as_array().is_some_and(|list| !list.is_empty());
    match (raw.is_empty(), listed) {
        (false, true) => {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), &raw.into(), detail));
        }
        (true, false) => {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), &detail));
        }
        _ => {}
    }
    for (at, requirement) in selector["requirements"].as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.requirements[{at}]");
        let given = !strings(requirement, "/values").is_empty();
        // Operators that are not known here may be known to who decides.
        match text(requirement, "/operator") {
            "In" | "NotIn" if !given => errors.push(FieldError::required(
                format!("{path}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if given => errors.push(FieldError::forbidden(
                format!("{path}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            _ => {}
        }
        let key = text(requirement, "/key");
        if name == "fieldSelector" && key.is_empty() {
            errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
        }
        if name == "labelSelector" {
            let wrong = names::qualified_name(key);
            errors.extend(wrong.iter().map(|why| FieldError::invalid(format!("{path}.key"), &key.into(), why)));
        }
    }
}

fn no_metadata(review: &Value, errors: &mut FieldErrors, namespace_allowed: bool) {
    let members = review.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let allowed = |name: &str| name == "managedFields" || namespace_allowed && name == "namespace";
    if members.into_iter().any(|(name, value)| !value.is_null() && !allowed(name)) {
        let detail = if namespace_allowed { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid("metadata", &review["metadata"], detail));
    }
}

fn subject(review: &Value) -> User {
    let extra = review.pointer("/spec/extra").and_then(Value::as_object).into_iter().flatten();
    User {
        name: text(review, "/spec/user").to_owned(),
        uid: text(review, "/spec/uid").to_owned(),
        groups: strings(review, "/spec/groups"),
        extra: extra.map(|(key, values)| (key.to_lowercase(), strings(values, ""))).collect(),
        ..User::default()
    }
}

fn decide(review: &Value, user: &User, authorizer: &dyn Authorizer) -> Value {
    let Decision { allowed, reason, error } = authorizer.authorize(user, &attributes(review));
    let mut status = json!({"allowed": allowed});
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    if !error.is_empty() {
        status["evaluationError"] = error.into();
    }
    status
}

fn attributes(review: &Value) -> Attributes {
    let part = |pointer: &str| text(review, pointer).to_owned();
    if has(review, "/spec/nonResourceAttributes") {
        return Attributes::path(
            text(review, "/spec/nonResourceAttributes/verb"),
            text(review, "/spec/nonResourceAttributes/path"),
        );
    }
    let part = |name: &str| part(&format!("/spec/resourceAttributes/{name}"));
    Attributes {
        verb: part("verb"),
        group: part("group"),
        version: part("version"),
        resource: part("resource"),
        subresource: part("subresource"),
        namespace: part("namespace"),
        name: part("name"),
        exact_fields: exact_fields(review),
        ..Attributes::default()
    }
}

/// The equalities that a review's selector demands. Other requirements narrow a request in ways that no authorizer asks for.
fn exact_fields(review: &Value) -> Vec<(String, String)> {
    let raw = text(review, "/spec/resourceAttributes/fieldSelector/rawSelector");
    if !raw.is_empty() {
        return FieldSelector::parse(raw).map(|selector| selector.equalities()).unwrap_or_default();
    }
    let path = "/spec/resourceAttributes/fieldSelector/requirements";
    let requirements = review.pointer(path).and_then(Value::as_array).into_iter().flatten();
    let equality =
        |requirement: &Value| match (text(requirement, "/operator"), strings(requirement, "/values").as_slice()) {
            ("In", [value]) => Some((text(requirement, "/key").to_owned(), value.clone())),
            _ => None,
        };
    requirements.filter_map(equality).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rbac::tests::{roles, user};

    fn access(verb: &str) -> Value {
        json!({"spec": {"resourceAttributes": {"namespace": "ns", "verb": verb, "resource": "configmaps"}}})
    }

    #[test]
    fn access_reviews() {
        let (roles, jane) = (roles(), user("jane", &[]));
        let review = self_subject_access_review(&access("list"), &jane, &roles).unwrap();
        assert_eq!(
            review["status"],
            json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"reader/ns\" of Role \"reader\" to User \"jane\""})
        );
        assert_eq!(review["spec"], access("list")["spec"]);
        assert_eq!(
            self_subject_access_review(&access("delete"), &jane, &roles).unwrap()["status"],
            json!({"allowed": false})
        );

        let refused = self_subject_access_review(&json!({"spec": {}}), &jane, &roles).unwrap_err();
        assert_eq!(
            refused.message,
            ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of \
             nonResourceAttributes or resourceAttributes must be specified"
        );
        let nobody = subject_access_review(&access("get"), &roles).unwrap_err();
        assert!(
            nobody.message.ends_with("spec.user: Invalid value: \"\": at least one of user or group must be specified")
        );
        let mut group = access("get");
        group["spec"]["groups"] = json!(["readers"]);
        assert_eq!(subject_access_review(&group, &roles).unwrap()["status"]["allowed"], true);
        let path = json!({"spec": {"user": "x", "groups": ["system:authenticated"],
            "nonResourceAttributes": {"path": "/healthz/ping", "verb": "get"}}});
        assert_eq!(subject_access_review(&path, &roles).unwrap()["status"]["allowed"], true);
        group["metadata"] = json!({"name": "x"});
        assert!(subject_access_review(&group, &roles).unwrap_err().message.contains("metadata: Invalid value"));
    }

    #[test]
    fn local_reviews() {
        let mut review = access("get");
        review["spec"]["user"] = json!("jane");
        let good = local_subject_access_review(&review, "ns", &roles()).unwrap();
        assert_eq!((&good["status"]["allowed"], &good["metadata"]), (&json!(true), &json!({"namespace": "ns"})));
        let elsewhere = local_subject_access_review(&review, "other", &roles()).unwrap_err();
        assert!(
            elsewhere
                .message
                .ends_with("spec.resourceAttributes.namespace: Invalid value: \"ns\": must match metadata.namespace")
        );
    }

    #[test]
    fn rules_reviews() {
        let review = json!({"spec": {"namespace": "ns"}});
        let rules = self_subject_rules_review(&review, &user("jane", &["system:authenticated"]), &roles()).unwrap();
        assert_eq!(rules["status"]["nonResourceRules"], json!([{"nonResourceURLs": ["/healthz/*"], "verbs": ["get"]}]));
        assert_eq!(rules["status"]["resourceRules"].as_array().unwrap().len(), 3);
        assert_eq!(
            self_subject_rules_review(&json!({"spec": {}}), &user("j", &[]), &roles()).unwrap_err().message,
            "no namespace on request"
        );
    }

    #[test]
    fn token_reviews() {
        struct Nothing;
        impl Lookup for Nothing {
            fn find(&self, _: &str, _: super::super::Bound, _: &str, _: &str) -> Option<super::super::Found> {
                None
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let tokens = crate::token::tests::tokens(dir.path());
        let authenticator = Authenticator::new(tokens, "admin-token".to_owned());
        let review =
            |token: &str| token_review(&json!({"spec": {"token": token}}), &authenticator, "root", &Nothing, 1000);
        let elsewhere = json!({"spec": {"token": "admin-token", "audiences": ["vault"]}});
        let elsewhere = token_review(&elsewhere, &authenticator, "root", &Nothing, 1000).unwrap();
        assert!(elsewhere["status"]["authenticated"].is_null() && elsewhere["status"]["error"].is_string());
        assert_eq!(review("admin-token").unwrap()["status"]["user"]["username"], "selvedge-admin");
        assert_eq!(review("nonsense").unwrap()["status"], json!({"user": {}, "error": "invalid bearer token"}));
        assert_eq!(review("").unwrap_err().code, 400);
    }
}
