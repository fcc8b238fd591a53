//! What extends the API: webhooks, admission policies, custom resource definitions, API services.

use serde_json::{Value, json};

use super::fields::{each, fill, fill_blank, text, unset, with, within};

pub(super) fn apply(kind: &str, obj: &mut Value) {
    match kind {
        "ValidatingWebhookConfiguration" => each(obj, "webhooks", webhook),
        "MutatingWebhookConfiguration" => each(obj, "webhooks", |hook| {
            webhook(hook);
            fill(hook, "reinvocationPolicy", "Never");
        }),
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            let Some(spec) = within(obj, "spec") else { return };
            fill(spec, "failurePolicy", "Fail");
            with(spec, "matchConstraints", match_resources);
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            with(obj, "spec", |spec| with(spec, "matchResources", match_resources));
        }
        _ => {}
    }
}

fn webhook(hook: &mut Value) {
    fill(hook, "failurePolicy", "Fail");
    fill(hook, "timeoutSeconds", 10);
    selectors(hook);
    each(hook, "rules", |rule| fill(rule, "scope", "*"));
    with(hook, "clientConfig", service_port);
}

fn match_resources(resources: &mut Value) {
    selectors(resources);
    for rules in ["resourceRules", "excludeResourceRules"] {
        each(resources, rules, |rule| fill(rule, "scope", "*"));
    }
}

fn selectors(object: &mut Value) {
    fill(object, "matchPolicy", "Equivalent");
    fill(object, "namespaceSelector", json!({}));
    fill(object, "objectSelector", json!({}));
}

fn service_port(client: &mut Value) {
    with(client, "service", |service| fill(service, "port", 443));
}

pub(super) fn api_service(obj: &mut Value) {
    with(obj, "spec", service_port);
}

pub(super) fn custom_resource_definition(obj: &mut Value) {
    let Some(spec) = within(obj, "spec") else { return };
    if let Some(names) = within(spec, "names") {
        let kind = text(names, &["kind"]).to_owned();
        if !kind.is_empty() {
            fill_blank(names, "singular", kind.to_lowercase());
            fill_blank(names, "listKind", format!("{kind}List"));
        }
    }
    if unset(spec.get("conversion")) {
        fill(spec, "conversion", json!({"strategy": "None"}));
    }
    with(spec, "conversion", |conversion| {
        with(conversion, "webhook", |webhook| with(webhook, "clientConfig", service_port));
    });
}
