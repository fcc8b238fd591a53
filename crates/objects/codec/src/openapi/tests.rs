use schema::builtin;
use schema::catalogue;
use serde_json::json;

use super::*;

fn read(document: &[u8]) -> Value {
    serde_json::from_slice(document).unwrap()
}

fn document(group: &str, version: &str) -> Value {
    read(&v3(builtin(), (group, version), builtin_resources(group, version)))
}

/// Every reference of a document leads somewhere.
fn check_references(node: &Value, root: &Value) {
    match node {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(root.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            map.values().for_each(|v| check_references(v, root));
        }
        Value::Array(list) => list.iter().for_each(|v| check_references(v, root)),
        _ => {}
    }
}

#[test]
fn references_lead_somewhere() {
    for group in catalogue::groups() {
        for version in &group.versions {
            let document = document(&group.name, version);
            check_references(&document, &document);
        }
    }
    let all = catalogue::groups().iter().flat_map(|g| g.versions.iter().flat_map(|v| builtin_resources(&g.name, v)));
    let document = read(&v2(builtin(), all));
    check_references(&document, &document);
}

#[test]
fn schemas_carry_their_marks() {
    let document = document("", "v1");
    let schemas = &document["components"]["schemas"];
    let container = &schemas["io.k8s.api.core.v1.Container"];
    assert_eq!(container["required"], json!(["name"]));
    assert_eq!(container["properties"]["name"], json!({"type": "string", "default": ""}));
    let policies = json!({"type": "string", "enum": ["Always", "IfNotPresent", "Never"]});
    assert_eq!(container["properties"]["imagePullPolicy"], policies);
    let ports = &container["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    assert_eq!(ports["x-kubernetes-patch-merge-key"], "containerPort");
    let reference = "#/components/schemas/io.k8s.api.core.v1.ContainerPort";
    assert_eq!(ports["items"], json!({"allOf": [{"$ref": reference}], "default": {}}));
    let limits = &schemas["io.k8s.api.core.v1.ResourceRequirements"]["properties"]["limits"]["additionalProperties"];
    assert_eq!(*limits, json!({"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}));
    let kinds = &schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"];
    assert_eq!(*kinds, json!([{"group": "", "kind": "Pod", "version": "v1"}]));
    let union = &schemas["io.k8s.api.core.v1.SeccompProfile"]["x-kubernetes-unions"][0];
    let want = json!({"discriminator": "type", "fields-to-discriminateBy": {"localhostProfile": "LocalhostProfile"}});
    assert_eq!(*union, want);
}

#[test]
fn operations_say_what_clients_look_for() {
    let document = document("apps", "v1");
    let paths = &document["paths"];
    let one = &paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    assert_eq!(one["patch"]["operationId"], "patchAppsV1NamespacedDeployment");
    let parameters = one["patch"]["parameters"].as_array().unwrap();
    let names: Vec<&str> = parameters.iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let scale = &paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]["get"];
    let kind = json!({"group": "autoscaling", "kind": "Scale", "version": "v1"});
    assert_eq!(scale["x-kubernetes-group-version-kind"], kind);
    let all = &paths["/apis/apps/v1/deployments"]["get"];
    assert_eq!(all["operationId"], "listAppsV1DeploymentForAllNamespaces");
    let collection = &paths["/apis/apps/v1/namespaces/{namespace}/deployments"]["delete"];
    assert_eq!(collection["operationId"], "deleteAppsV1CollectionNamespacedDeployment");
}

#[test]
fn custom_resources_join_in() {
    let words = |list: &[&str]| list.iter().map(|w| Box::from(*w)).collect::<Vec<Box<str>>>();
    let resource = Resource {
        group: "stable.example.com".into(),
        version: "v1".into(),
        resource: "crontabs".into(),
        singular: "crontab".into(),
        kind: "CronTab".into(),
        namespaced: true,
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: words(&["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]),
        subresources: Vec::new(),
        ty: None,
    };
    let models = Models {
        object: (
            "com.example.stable.v1.CronTab".into(),
            json!({"type": "object", "x-kubernetes-group-version-kind": [{"kind": "CronTab"}]}),
        ),
        list: ("com.example.stable.v1.CronTabList".into(), json!({"type": "object"})),
    };
    let one = || std::iter::once(OpenApiResource { resource: &resource, schema: Definition::Custom(&models) });
    let document = read(&v3(builtin(), ("stable.example.com", "v1"), one()));
    check_references(&document, &document);
    let definition = &document["components"]["schemas"]["com.example.stable.v1.CronTab"];
    assert_eq!(definition["x-kubernetes-group-version-kind"][0]["kind"], "CronTab");
    let path = &document["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"];
    assert_eq!(path["get"]["operationId"], "readStableExampleComV1NamespacedCronTab");
    let told = path["get"]["responses"]["200"]["content"].as_object().unwrap();
    assert_eq!(told.keys().collect::<Vec<_>>(), ["application/json", "application/yaml"]);
    assert_eq!(document["info"]["title"], "Kubernetes CRD Swagger");
    let types = path["patch"]["requestBody"]["content"].as_object().unwrap();
    assert!(!types.contains_key("application/strategic-merge-patch+json"));

    let document = read(&v2(builtin(), one()));
    check_references(&document, &document);
    assert_eq!(document["definitions"]["com.example.stable.v1.CronTabList"], models.list.1);
    let meta = &document["definitions"]["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
    let created = meta["creationTimestamp"]["description"].as_str().unwrap();
    assert!(created.starts_with("CreationTimestamp is a timestamp"));
}
