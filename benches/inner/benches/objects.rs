//! What one object costs on its way in and out.

use std::hint::black_box;

use codec::decode;
use codec::decode::Format;
use codec::proto;
use codec::table::{Node, Printer};
use criterion::{Criterion, criterion_group, criterion_main};
use patch::apply;
use rules::strategy;
use rules::strategy::Now;
use rules::{defaults, validate};
use schema::catalogue;
use schema::selector::{LabelSelector, scan};
use serde_json::{Value, json};

const NOW: &str = "2026-11-15T20:28:48Z";

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx",
                "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": "100m"}}}]}}}})
}

fn objects(c: &mut Criterion) {
    let schema = schema::builtin();
    let (Some(resource), Some(ty)) =
        (catalogue::find("apps", "v1", "deployments"), schema.of_kind("apps", "v1", "Deployment"))
    else {
        return;
    };
    let text = deployment().to_string();
    let mut whole = deployment();
    defaults::apply("apps", "v1", "Deployment", &mut whole);
    let stored = whole.to_string();
    let raw = proto::encode(schema, ty, &whole);
    let change = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "nginx:2"}]}}}});
    let selector = LabelSelector::parse("app in (web, db),tier!=x");

    c.bench_function("parse JSON", |b| b.iter(|| decode::parse(black_box(text.as_bytes()), Format::Json)));
    c.bench_function("parse, conform, default, prepare, validate", |b| {
        b.iter(|| {
            let mut value = decode::parse(text.as_bytes(), Format::Json).map(|p| p.value).unwrap_or_default();
            let _ = decode::conform(schema, ty, &mut value);
            defaults::apply("apps", "v1", "Deployment", &mut value);
            strategy::prepare_create(resource, &mut value, Now { rfc3339: NOW });
            validate::create(resource, &value)
        })
    });
    c.bench_function("protobuf to JSON value", |b| b.iter(|| proto::decode(schema, ty, black_box(&raw))));
    c.bench_function("stored JSON to protobuf", |b| {
        let mut out = Vec::new();
        b.iter(|| {
            out.clear();
            proto::encode_json(schema, ty, black_box(stored.as_bytes()), &mut out)
        })
    });
    c.bench_function("strategic merge patch", |b| {
        b.iter_batched(
            || whole.clone(),
            |mut doc| patch::strategic(schema, ty, &mut doc, &change),
            criterion::BatchSize::SmallInput,
        )
    });
    let context = apply::Context {
        schema,
        ty,
        api_version: "apps/v1",
        kind: "Deployment",
        manager: "bench",
        subresource: "",
        now: NOW,
        reset: apply::reset_fields("apps", "deployments", "", true),
        versions: None,
    };
    c.bench_function("server-side apply, second time", |b| {
        let live = apply::apply(&context, None, &deployment(), true).unwrap_or_default();
        b.iter(|| apply::apply(&context, Some(&live), &deployment(), false))
    });
    if let Ok(selector) = selector {
        c.bench_function("label selector on stored JSON", |b| {
            b.iter(|| scan::labels_match(black_box(stored.as_bytes()), &selector))
        });
    }
    c.bench_function("table row", |b| {
        let printer = Printer::built_in("apps", "v1", "deployments");
        b.iter(|| printer.row(&Node::new(black_box(stored.as_bytes())), 1_800_000_000))
    });
}

criterion_group!(benches, objects);
criterion_main!(benches);
