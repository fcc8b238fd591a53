//! Webhook configurations and admission policies.

use std::collections::HashSet;

use cel::Type;
use schema::names;

use super::expressions::Known;
use super::node::{Node, Quoted};
use super::{Rules, meta};

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

pub(super) fn rules(kind: &str) -> Rules {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => Rules::new(webhooks).before(|_, _| {}),
        "ValidatingAdmissionPolicy" => Rules::new(policy).updated(|new, old| if_changed(new, old, policy)),
        "ValidatingAdmissionPolicyBinding" => Rules::new(binding).before(|_, _| {}),
        "MutatingAdmissionPolicy" => {
            Rules::new(mutating_policy).updated(|new, old| if_changed(new, old, mutating_policy))
        }
        "MutatingAdmissionPolicyBinding" => Rules::new(mutating_binding).before(|_, _| {}),
        _ => Rules::new(|_| {}),
    }
}

/// What was accepted once stays acceptable: rules became stricter since, and labels and finalizers must go on changing.
fn if_changed(new: Node<'_>, old: Node<'_>, rules: fn(Node<'_>)) {
    if !new.get("spec").same(old.get("spec")) {
        rules(new);
    }
}

fn webhooks(root: Node<'_>) {
    let mut seen = HashSet::new();
    for hook in root.get("webhooks").items() {
        webhook(hook);
        review_versions(hook.get("admissionReviewVersions"));
        let name = hook.get("name");
        if !name.is_empty() && !seen.insert(name.str()) {
            name.duplicate();
        }
    }
}

fn webhook(hook: Node<'_>) {
    let name = hook.get("name");
    let complaints = names::dns1123_subdomain(name.str());
    if name.is_empty() {
        name.required("");
    } else if !complaints.is_empty() {
        name.invalid(&complaints.join(","));
    } else if name.str().split('.').count() < 3 {
        name.invalid("should be a domain with at least three segments separated by dots");
    }
    for rule in hook.get("rules").items() {
        operations(rule.get("operations"));
        resource_rule(rule);
    }
    given_one_of(hook.get("failurePolicy"), &["Fail", "Ignore"]);
    given_one_of(hook.get("matchPolicy"), &["Equivalent", "Exact"]);
    let effects = hook.get("sideEffects");
    if effects.is_set() {
        effects.one_of(&["None", "NoneOnDryRun"]);
    } else {
        effects.required("must specify one of None, NoneOnDryRun");
    }
    let timeout = hook.get("timeoutSeconds");
    if timeout.int().is_some_and(|n| !(1..=30).contains(&n)) {
        timeout.invalid("the timeout value must be between 1 and 30 seconds");
    }
    meta::label_selector(hook.get("namespaceSelector"));
    meta::label_selector(hook.get("objectSelector"));
    given_one_of(hook.get("reinvocationPolicy"), &["IfNeeded", "Never"]);
    client_config(hook.get("clientConfig"));
    match_conditions(hook.get("matchConditions"), &Known::of_conditions(false));
}

fn given_one_of(node: Node<'_>, supported: &[&str]) {
    if node.is_set() {
        node.one_of(supported);
    }
}

fn operations(list: Node<'_>) {
    if list.is_empty() {
        list.required("");
    }
    if list.len() > 1 && list.array().iter().any(|o| o == "*") {
        list.invalid("if '*' is present, must not specify other operations");
    }
    list.items().for_each(|operation| operation.one_of(OPERATIONS));
}

fn resource_rule(rule: Node<'_>) {
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let list = rule.get(field);
        if list.is_empty() {
            list.required("");
        }
        if list.len() > 1 && list.array().iter().any(|v| v == "*") {
            list.invalid(&format!("if '*' is present, must not specify other {what}"));
        }
    }
    for version in rule.get("apiVersions").items() {
        if version.is_empty() {
            version.required("");
        }
    }
    let resources = rule.get("resources");
    if resources.is_empty() {
        resources.required("");
    }
    for resource in resources.items() {
        if resource.is_empty() {
            resource.required("");
        }
    }
    let has = |name: &str| resources.array().iter().any(|r| r == name);
    let mut whole = HashSet::new();
    for resource in resources.items() {
        let Some((name, sub)) = resource.str().split_once('/') else { continue };
        if sub == "*" {
            whole.insert(name);
        } else if whole.contains(name) {
            resource.invalid(&format!("if '{name}/*' is present, must not specify {}", resource.str()));
        }
    }
    if resources.len() > 1 && has("*/*") {
        resources.invalid("if '*/*' is present, must not specify other resources");
    }
    let plain = resources.array().last().and_then(|r| r.as_str()).is_some_and(|r| r != "*" && !r.contains('/'));
    if has("*") && plain {
        resources.invalid("if '*' is present, must not specify other resources without subresources");
    }
    given_one_of(rule.get("scope"), &["*", "Cluster", "Namespaced"]);
}

fn review_versions(versions: Node<'_>) {
    if versions.is_empty() {
        return versions.required("must specify one of v1, v1beta1");
    }
    let mut seen = HashSet::new();
    for version in versions.items() {
        if seen.insert(version.str()) {
            version.check(names::dns1035_label);
        } else {
            version.invalid_str("duplicate version");
        }
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        versions.invalid("must include at least one of v1, v1beta1");
    }
}

fn client_config(config: Node<'_>) {
    let (url, service) = (config.get("url"), config.get("service"));
    if url.is_set() == service.is_set() {
        return config.required("exactly one of url or service is required");
    }
    if url.is_set() {
        return client_url(url);
    }
    for field in ["name", "namespace"] {
        if service.get(field).is_empty() {
            service.get(field).required("");
        }
    }
    let port = service.get("port");
    if port.is_set() && !names::port_number(port.int_or_0()).is_empty() {
        port.invalid(&format!("port is not valid: {}", names::between(1, 65535)));
    }
    let path = service.get("path");
    if !path.is_empty() {
        service_path(path);
    }
}

fn client_url(url: Node<'_>) {
    let format = "; desired format: https://host[/path]";
    let (scheme, rest) = url.str().split_once("://").unwrap_or(("", url.str()));
    if scheme != "https" {
        url.invalid_text(scheme, &format!("'https' is the only allowed URL scheme{format}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or("");
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() {
        url.invalid_text(host, &format!("host must be specified{format}"));
    }
    if let Some(user) = user {
        url.invalid_text(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        url.invalid_text(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        url.invalid_text(query, "query parameters are not permitted in the URL");
    }
}

/// A path whose every segment could be a name.
fn service_path(path: Node<'_>) {
    let text = path.str();
    if !text.starts_with('/') {
        path.invalid("must start with a '/'");
    }
    if text == "/" {
        return;
    }
    // The segment before the first slash is there in any path, and one behind the last is nothing.
    let text = text.get(1..).unwrap_or("");
    for (i, segment) in text.strip_suffix('/').unwrap_or(text).split('/').enumerate() {
        if segment.is_empty() {
            path.invalid(&format!("segment[{i}] may not be empty"));
            continue;
        }
        for complaint in names::dns1123_subdomain(segment) {
            path.invalid(&format!("segment[{i}]: {complaint}"));
        }
    }
}

fn match_conditions(conditions: Node<'_>, known: &Known) {
    if conditions.len() > 64 {
        conditions.too_many(64);
    }
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        if condition.get("expression").str().trim().is_empty() {
            condition.get("expression").required("");
        }
        known.check(condition.get("expression"), &[Type::Bool]);
        let name = condition.get("name");
        if name.is_empty() {
            name.required("");
        } else {
            name.check(names::qualified_name);
            if !seen.insert(name.str()) {
                name.duplicate();
            }
        }
    }
}

/// What both kinds of policies have, and what their expressions may read.
fn policy_base(spec: Node<'_>) -> Known {
    let failure = spec.get("failurePolicy");
    if failure.is_set() {
        failure.one_of(&["Fail", "Ignore"]);
    } else {
        failure.required("");
    }
    let kind = spec.get("paramKind");
    if kind.is_set() {
        let version = kind.get("apiVersion");
        if version.is_empty() {
            version.required("");
        } else if version.str().matches('/').count() > 1 {
            version.invalid(&format!("unexpected GroupVersion string: {}", version.str()));
        } else {
            let (group, version_name) = version.str().split_once('/').unwrap_or(("", version.str()));
            if !group.is_empty() {
                names::dns1123_subdomain(group).iter().for_each(|complaint| version.invalid(complaint));
            }
            names::dns1035_label(version_name).iter().for_each(|complaint| version.invalid(complaint));
        }
        let name = kind.get("kind");
        let complaints = names::dns1035_label(&name.str().to_lowercase());
        if name.is_empty() {
            name.required("");
        } else if !complaints.is_empty() {
            name.invalid(&format!("may have mixed case, but should otherwise match: {}", complaints.join(",")));
        }
    }
    let constraints = spec.get("matchConstraints");
    if constraints.is_set() {
        let rules = constraints.get("resourceRules");
        if rules.is_empty() {
            rules.required("");
        }
        match_resources(constraints);
    } else {
        constraints.required("");
    }
    match_conditions(spec.get("matchConditions"), &Known::of_conditions(kind.is_set()));
    let mut known = Known::of_policy(kind.is_set());
    variables(spec.get("variables"), &mut known);
    known
}

fn policy(root: Node<'_>) {
    let spec = root.get("spec");
    let known = policy_base(spec);
    let known_to_messages = known.of_messages();
    let (validations, audits) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && audits.is_empty() {
        let text = "validations or auditAnnotations must contain at least one item";
        validations.required(text);
        audits.required(text);
    }
    for validation in validations.items() {
        if validation.get("expression").str().trim().is_empty() {
            validation.get("expression").required("expression is not specified");
        }
        known.check(validation.get("expression"), &[Type::Bool]);
        let (message, expression) = (validation.get("message"), validation.get("messageExpression"));
        if !expression.is_empty() && expression.str().trim().is_empty() {
            expression.invalid("must be non-empty if specified");
        }
        known_to_messages.check(expression, &[Type::Text]);
        if !message.is_empty() && message.str().trim().is_empty() {
            message.invalid("must be non-empty if specified");
        } else if message.str().contains(['\n', '\r']) {
            message.invalid("must not contain line breaks");
        }
        let reason = validation.get("reason");
        if reason.is_set() && reason.str() != "Unauthorized" {
            reason.one_of(&["Forbidden", "Invalid", "RequestEntityTooLarge"]);
        }
    }
    audit_annotations(root, audits, &known);
}

/// Each may read those before it.
fn variables(list: Node<'_>, known: &mut Known) {
    for variable in list.items() {
        let (name, expression) = (variable.get("name"), variable.get("expression"));
        let is_identifier = name.str().chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.str().starts_with(|c: char| c.is_ascii_digit())
            && !cel::is_reserved(name.str());
        if name.is_empty() || name.str().trim().is_empty() {
            name.required("name is not specified");
        } else if !is_identifier {
            name.invalid("must be a valid CEL identifier");
        }
        if expression.str().trim().is_empty() {
            expression.required("expression is not specified");
        }
        let ty = known.check(expression, &[]);
        known.declare(name.str(), ty);
    }
}

fn audit_annotations(root: Node<'_>, list: Node<'_>, known: &Known) {
    let policy = root.get("metadata").get("name").str();
    if list.len() > 20 {
        list.invalid("must not have more than 20 auditAnnotations");
    }
    let mut seen = HashSet::new();
    for annotation in list.items() {
        let (key, value) = (annotation.get("key"), annotation.get("valueExpression"));
        // Written as what it is in the log of what was decided.
        let whole = format!("{policy}/{}", key.str());
        names::qualified_name(&whole).iter().for_each(|complaint| key.invalid_text(&whole, complaint));
        if !seen.insert(key.str()) {
            key.duplicate_as(Quoted(key.str()));
        }
        match value.str().trim().len() {
            0 => value.required("valueExpression is not specified"),
            5121.. => value.required("must not exceed 5120 bytes in length"),
            _ => drop(known.check(value, &[Type::Text, Type::Null])),
        }
    }
}

fn match_resources(constraints: Node<'_>) {
    meta::label_selector(constraints.get("namespaceSelector"));
    meta::label_selector(constraints.get("objectSelector"));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in constraints.get(list).items() {
            let mut seen = HashSet::new();
            for name in rule.get("resourceNames").items() {
                name.check(names::path_segment);
                if !seen.insert(name.str()) {
                    name.duplicate();
                }
            }
            operations(rule.get("operations"));
            resource_rule(rule);
        }
    }
    given_one_of(constraints.get("matchPolicy"), &["Equivalent", "Exact"]);
}

/// Only what has a body can be changed.
fn changing_operations(resources: Node<'_>) {
    let place = resources.get("resourceRules").get("operations");
    for rule in resources.get("resourceRules").items() {
        for operation in rule.get("operations").items() {
            let place = place.with(operation.value);
            place.one_of(&["*", "CONNECT", "CREATE", "UPDATE"]);
        }
    }
}

fn mutating_policy(root: Node<'_>) {
    let spec = root.get("spec");
    let known = policy_base(spec);
    changing_operations(spec.get("matchConstraints"));
    let mutations = spec.get("mutations");
    if mutations.is_empty() {
        mutations.required("mutations must contain at least one item");
    }
    for mutation in mutations.items() {
        self::mutation(mutation, &known);
    }
    spec.get("reinvocationPolicy").required_one_of(&["IfNeeded", "Never"]);
}

fn mutation(mutation: Node<'_>, known: &Known) {
    let ty = mutation.get("patchType");
    let (chosen, other, wanted) = match ty.str() {
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Type::message("Object")),
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Type::List(Box::new(Type::message("JSONPatch")))),
        _ => return ty.required_one_of(&["ApplyConfiguration", "JSONPatch"]),
    };
    let because = format!("must be specified when patchType is {}", ty.str());
    let expression = mutation.get(chosen).get("expression");
    if !mutation.get(chosen).is_set() {
        mutation.get(chosen).required(&because);
    } else if expression.str().trim().is_empty() {
        expression.required("");
    } else {
        known.check_mutation(expression, wanted);
    }
    if mutation.get(other).is_set() {
        let why = format!("must not be specified when patchType is {}", ty.str());
        mutation.get(other).invalid_text(&format!("{{{other}}}"), &why);
    }
}

fn mutating_binding(root: Node<'_>) {
    bound(root);
    changing_operations(root.get("spec").get("matchResources"));
}

/// What a binding of either kind says.
fn bound(root: Node<'_>) {
    let spec = root.get("spec");
    spec.get("policyName").required_and(names::dns1123_subdomain);
    if spec.get("paramRef").is_set() {
        param_ref(spec.get("paramRef"));
    }
    match_resources(spec.get("matchResources"));
}

fn param_ref(param: Node<'_>) {
    let (name, selector) = (param.get("name"), param.get("selector"));
    match (name.is_empty(), selector.is_set()) {
        (false, true) => {
            name.forbidden("name and selector are mutually exclusive");
            selector.forbidden("name and selector are mutually exclusive");
        }
        (true, false) => param.required("one of name or selector must be specified"),
        (false, false) => name.check(names::path_segment),
        (true, true) => meta::label_selector(selector),
    }
    param.get("parameterNotFoundAction").required_one_of(&["Deny", "Allow"]);
}

fn binding(root: Node<'_>) {
    let spec = root.get("spec");
    bound(root);
    let actions = spec.get("validationActions");
    if actions.is_empty() {
        actions.required("at least one validation action is required");
    }
    let mut seen = HashSet::new();
    for action in actions.items() {
        action.one_of(&["Audit", "Deny", "Warn"]);
        if !seen.insert(action.str()) {
            action.duplicate();
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        actions.invalid("must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)");
    }
}
