//! The decoders, each as a function that must come back with every input, and the laws that hold for what it accepts.

use codec::decode;
use codec::decode::Format;
use codec::proto;
use codec::table::{Node, Printer};
use patch::apply;
use rules::crd;
use rules::crd::Definition;
use rules::strategy;
use rules::strategy::Now;
use rules::{defaults, validate};
use schema::TypeId;
use schema::catalogue;
use schema::quantity::Quantity;
use schema::selector::{FieldSelector, LabelSelector};
use serde_json::Value;

use crate::{seeds, wire};

/// Fails with the law that was broken.
pub(crate) type Verdict = Result<(), String>;

pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
    pub(crate) run: fn(&[u8]) -> Verdict,
}

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "json", seeds: seeds::json_texts, run: |input| object(input, Format::Json) },
    Target { name: "yaml", seeds: seeds::yaml_texts, run: |input| object(input, Format::Yaml) },
    Target { name: "protobuf", seeds: seeds::protobuf_messages, run: protobuf },
    Target { name: "patch", seeds: seeds::patches, run: patches },
    Target { name: "apply", seeds: seeds::json_texts, run: applied },
    Target { name: "selector", seeds: seeds::selectors, run: selectors },
    Target { name: "quantity", seeds: seeds::quantities, run: quantity },
    Target { name: "definition", seeds: || vec![seeds::crd().to_string().into_bytes()], run: definition },
    Target { name: "cel", seeds: seeds::rules, run: cel },
    Target { name: "customize", seeds: seeds::customizations, run: customized },
    Target { name: "path", seeds: wire::request_paths, run: wire::request_path },
    Target { name: "dns", seeds: wire::dns_questions, run: wire::dns },
    Target { name: "keeper", seeds: wire::keeper_frames, run: wire::keeper },
    Target { name: "websocket", seeds: seeds::websockets, run: websocket },
    Target { name: "spdy", seeds: seeds::spdy, run: spdy },
    Target { name: "link", seeds: seeds::link_messages, run: link_message },
    Target { name: "link-frames", seeds: seeds::link_frames, run: link_frames },
    Target { name: "journal", seeds: seeds::journal_records, run: store::check_journal_record },
];

const NOW: &str = "2026-11-15T20:28:48Z";

fn type_of(value: &Value) -> Option<(&'static catalogue::Resource, TypeId)> {
    let (group, version) = catalogue::split_api_version(value.get("apiVersion")?.as_str()?);
    let kind = value.get("kind")?.as_str()?;
    Some((catalogue::find_kind(group, version, kind)?, schema::builtin().of_kind(group, version, kind)?))
}

/// The whole way of a written object: parse, conform, default, prepare, validate, show.
fn object(input: &[u8], format: Format) -> Verdict {
    let Ok(parsed) = decode::parse(input, format) else { return Ok(()) };
    let mut value = parsed.value;
    let Some((resource, ty)) = type_of(&value) else { return Ok(()) };
    let schema = schema::builtin();
    if decode::conform(schema, ty, &mut value).is_err() {
        return Ok(());
    }
    let mut twice = value.clone();
    let unknown = decode::conform(schema, ty, &mut twice).map_err(|e| format!("conforms once and then not: {e}"))?;
    if twice != value || !unknown.is_empty() {
        return Err(format!("conforming twice changes {value} to {twice} ({unknown:?})"));
    }
    finish(resource, ty, value)
}

fn finish(resource: &'static catalogue::Resource, ty: TypeId, mut value: Value) -> Verdict {
    let schema = schema::builtin();
    let before = value.clone();
    defaults::apply(&resource.group, &resource.version, &resource.kind, &mut value);
    let mut twice = value.clone();
    defaults::apply(&resource.group, &resource.version, &resource.kind, &mut twice);
    if twice != value {
        return Err(format!("defaulting twice changes {value} to {twice}"));
    }
    strategy::prepare_create(resource, &mut value, Now { rfc3339: NOW });
    let _ = validate::metadata_create(resource, &value);
    let _ = validate::create(resource, &value);
    let _ = validate::update(resource, "", &value, &before);
    let raw = proto::encode(schema, ty, &value);
    proto::decode(schema, ty, &raw).map_err(|e| format!("cannot read its own protobuf of {value}: {e}"))?;
    let table = Printer::built_in(&resource.group, &resource.version, &resource.resource);
    let _ = table.row(&Node::new(value.to_string().as_bytes()), 1_800_000_000);
    Ok(())
}

fn protobuf(input: &[u8]) -> Verdict {
    let Ok(unknown) = proto::unwrap(input) else { return Ok(()) };
    let (group, version) = catalogue::split_api_version(&unknown.api_version);
    let schema = schema::builtin();
    let Some(ty) = schema.of_kind(group, version, &unknown.kind) else { return Ok(()) };
    let Ok(value) = proto::decode(schema, ty, unknown.raw) else { return Ok(()) };
    match catalogue::find_kind(group, version, &unknown.kind) {
        Some(resource) => finish(resource, ty, value),
        None => Ok(()),
    }
}

fn patches(input: &[u8]) -> Verdict {
    let schema = schema::builtin();
    let parsed = decode::parse(input, Format::Json).map(|p| p.value);
    for original in seeds::objects() {
        let _ = patch::json(&mut original.clone(), input);
        let Ok(value) = &parsed else { continue };
        let mut merged = original.clone();
        patch::merge(&mut merged, value);
        let mut twice = merged.clone();
        patch::merge(&mut twice, value);
        if twice != merged {
            return Err(format!("a merge patch applied twice gives {twice}, not {merged}"));
        }
        if let Some((_, ty)) = type_of(&original) {
            let _ = patch::strategic(schema, ty, &mut original.clone(), value);
        }
    }
    Ok(())
}

fn applied(input: &[u8]) -> Verdict {
    let schema = schema::builtin();
    let Ok(parsed) = decode::parse(input, Format::Yaml) else { return Ok(()) };
    let mut config = parsed.value;
    let Some((resource, ty)) = type_of(&config) else { return Ok(()) };
    if decode::conform(schema, ty, &mut config).is_err() {
        return Ok(());
    }
    let api_version = resource.api_version();
    let context = apply::Context {
        schema,
        ty,
        api_version: &api_version,
        kind: &resource.kind,
        manager: "fuzz",
        subresource: "",
        now: NOW,
        reset: apply::reset_fields(&resource.group, &resource.resource, "", true),
        versions: None,
    };
    let Ok(first) = apply::apply(&context, None, &config, true) else { return Ok(()) };
    let second = apply::apply(&context, Some(&first), &config, false)
        .map_err(|e| format!("applies once and then not: {}", e.message))?;
    if first != second {
        return Err(format!("applying twice changes {first} to {second}"));
    }
    for live in seeds::objects().iter().filter(|o| o["kind"] == config["kind"]) {
        let _ = apply::apply(&context, Some(live), &config, false);
        let mut updated = config.clone();
        apply::track_update(&context, Some(live), &mut updated);
    }
    Ok(())
}

fn selectors(input: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(input);
    let objects = seeds::objects();
    if let Ok(selector) = LabelSelector::parse(&text) {
        for o in &objects {
            let scanned = schema::selector::scan::labels_match(o.to_string().as_bytes(), &selector);
            if selector.matches_object(o) != scanned {
                return Err(format!("the scanner says {scanned} of {o}, and the object the opposite"));
            }
        }
    }
    if let Ok(selector) = FieldSelector::parse(&text) {
        let _ = selector.for_resource("", "v1", "pods");
    }
    // Objects out of the store are good JSON, and yet nothing may break the scanner.
    let _ = schema::selector::scan::raw_at(input, &["metadata", "labels"]);
    let _ = schema::selector::scan::scalar_at(input, &["a"]);
    Ok(())
}

fn quantity(input: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(input);
    let Ok(first) = Quantity::parse(&text) else { return Ok(()) };
    // Exponents in the millions are clamped, which is as good as any answer.
    if text.len() > 20 {
        return Ok(());
    }
    let shown = first.to_string();
    let second = Quantity::parse(&shown).map_err(|e| format!("cannot read its own {shown:?}: {e}"))?;
    if second.to_string() == shown { Ok(()) } else { Err(format!("{shown:?} becomes {second}")) }
}

fn definition(input: &[u8]) -> Verdict {
    let Ok(parsed) = decode::parse(input, Format::Json) else { return Ok(()) };
    let mut value = parsed.value;
    let Some((resource, ty)) = type_of(&value) else { return Ok(()) };
    if decode::conform(schema::builtin(), ty, &mut value).is_err() || &*resource.kind != "CustomResourceDefinition" {
        return Ok(());
    }
    defaults::apply(&resource.group, &resource.version, &resource.kind, &mut value);
    let valid = crd::validate_definition(&value, None).is_empty();
    let Ok(definition) = Definition::compile(&value) else { return Ok(()) };
    if !valid {
        return Ok(());
    }
    for version in &definition.versions {
        for mut object in seeds::objects() {
            object["apiVersion"] = "w.com/v1".into();
            object["kind"] = "Loom".into();
            if version.decode(&mut object).is_ok() {
                version.default(&mut object);
                let _ = version.validate(&object);
            }
        }
    }
    Ok(())
}

/// A rule is parsed and evaluated; its place in a schema is what `definition` tries.
fn cel(input: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(input);
    if let Ok(rule) = cel::Expression::parse(&text) {
        let mut budget = cel::COST_OF_ONE;
        let _ = rule.evaluate(&[("self", cel::Value::Int(4)), ("oldSelf", cel::Value::Null)], &mut budget);
    }
    Ok(())
}

/// A path, and behind the first line break the value: as a Customizer has them.
fn customized(input: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(input);
    let (path, value) = text.split_once('\n').unwrap_or((&text, "1"));
    let annotations = serde_json::json!({"edge.kcp.io/expand-parameters": "true"});
    let customizer = serde_json::json!({
        "metadata": {"annotations": annotations}, "replacements": [{"path": path, "value": value}]});
    let customizer = placement::Customizer::read(&customizer);
    let parameters = placement::Parameters { labels: [("env".into(), "\"prod\\".into())].into(), ..Default::default() };
    for object in seeds::objects() {
        let identity = |value: &Value| [value["kind"].clone(), value["metadata"]["name"].clone()];
        if let Ok(done) = placement::customize(object.clone(), Some(&customizer), &parameters)
            && identity(&done) != identity(&object)
        {
            return Err(format!("{object} became {done}, which is another one"));
        }
    }
    Ok(())
}

/// However bytes arrive, they say the same.
fn websocket(input: &[u8]) -> Verdict {
    use node_api::ws::frame::{Decoder, Event};
    let read = |piece: usize| {
        let (mut decoder, mut all) = (Decoder::default(), Vec::<Event>::new());
        for bytes in input.chunks(piece) {
            decoder.feed(bytes);
            loop {
                match decoder.next_event() {
                    Ok(Some(event)) => all.push(event),
                    Ok(None) => break,
                    Err(violation) => return (all, Some(violation)),
                }
            }
        }
        (all, None)
    };
    let (whole, pieces) = (read(input.len().max(1)), read(3));
    if whole == pieces { Ok(()) } else { Err(format!("whole it is {whole:?}, in pieces {pieces:?}")) }
}

fn spdy(input: &[u8]) -> Verdict {
    use node_api::spdy::session::{Event, Session};
    let read = |piece: usize| {
        let (mut session, mut all, mut data) =
            (Session::default(), Vec::<Event>::new(), std::collections::BTreeMap::<u32, Vec<u8>>::new());
        for bytes in input.chunks(piece) {
            session.feed(bytes);
            loop {
                match session.next_event() {
                    // Data comes as it comes, and what is answered to it: only their sum is the same.
                    Ok(Some(Event::Data { stream, data: piece })) => data.entry(stream).or_default().extend(piece),
                    Ok(Some(Event::Answer(_))) => {}
                    Ok(Some(event)) => {
                        if let Event::Opened { stream, .. } = event {
                            session.accept(stream);
                            if stream % 3 == 0 {
                                session.finish(stream);
                            }
                        }
                        all.push(event);
                    }
                    Ok(None) => break,
                    Err(violation) => return (all, data, Some(violation)),
                }
            }
        }
        (all, data, None)
    };
    let (whole, pieces) = (read(input.len().max(1)), read(7));
    if whole == pieces { Ok(()) } else { Err(format!("whole it is {whole:?}, in pieces {pieces:?}")) }
}

/// A message that is accepted is encoded to bytes that mean the same.
fn link_message(input: &[u8]) -> Verdict {
    let Ok(message) = link::Message::decode(bytes::Bytes::copy_from_slice(input)) else { return Ok(()) };
    match link::Message::decode(message.encode()) {
        Ok(again) if again == message => Ok(()),
        again => Err(format!("{message:?} came back as {again:?}")),
    }
}

/// However frames are cut, they hold the same messages and end with the same error.
fn link_frames(input: &[u8]) -> Verdict {
    let read = |piece: usize| link::testing::read_frames(input.chunks(piece).map(bytes::Bytes::copy_from_slice));
    let (whole, pieces) = (read(input.len().max(1)), read(3));
    if whole == pieces { Ok(()) } else { Err(format!("whole it is {whole:?}, in pieces {pieces:?}")) }
}
