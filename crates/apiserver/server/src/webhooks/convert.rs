//! Custom resources in another version than they lie in, where a definition says that a webhook converts them.
//!
//! Rendering is synchronous, so whatever comes from the store or goes there is converted before: a page of objects is one
//! question. What was converted is kept for the next who asks, as long as the object stays what it is.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use cache::object::Object;
use cache::{Change, object};
use rules::crd;
use rules::crd::{Definition, Strategy};
use schema::status::{Result, Status};
use serde_json::Value;

use super::Endpoint;
use crate::{
    Server,
    call::Call,
    kinds::{Custom, Kind},
    render,
    reply::Reply,
};

const TIMEOUT: Duration = Duration::from_secs(30);
/// How many objects are converted by one question, and how large an answer may be.
const PAGE: usize = 500;
const ANSWER: usize = 64 << 20;
/// How many converted objects are kept.
const KEPT: usize = 2048;

/// Where an object lies, and the version that it was asked for in.
type Place = (Box<str>, Box<str>);

#[derive(Default)]
pub struct Conversions {
    /// No webhook is asked.
    none: bool,
    endpoints: Mutex<Vec<(Weak<Definition>, Arc<Endpoint>)>>,
    done: Mutex<HashMap<Place, Done>>,
}

struct Done {
    definition: Weak<Definition>,
    from: Bytes,
    to: Bytes,
}

/// The custom kind, if its objects are converted by a webhook.
pub fn by_webhook(kind: &Kind) -> Option<&Custom> {
    kind.custom.as_ref().filter(|custom| custom.definition.conversion.strategy == Strategy::Webhook)
}

impl Conversions {
    pub fn none() -> Self {
        Self { none: true, ..Self::default() }
    }

    fn endpoint(&self, cluster: &str, definition: &Arc<Definition>) -> Arc<Endpoint> {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|(known, _)| known.strong_count() > 0);
        if let Some((_, found)) = endpoints.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(definition)) {
            return found.clone();
        }
        let made = Arc::new(Endpoint::new(cluster, &definition.conversion.client_config));
        endpoints.push((Arc::downgrade(definition), made.clone()));
        made
    }

    fn find(&self, kind: &Kind, definition: &Arc<Definition>, object: &Object) -> Option<Bytes> {
        let place = (kind.store_key(&object.key).into(), kind.resource.version.clone());
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let found = done.get(&place)?;
        let same = found.definition.as_ptr() == Arc::as_ptr(definition) && found.from == object.json;
        same.then(|| found.to.clone())
    }

    fn keep(&self, kind: &Kind, definition: &Arc<Definition>, object: &Object, to: &Bytes) {
        let place = (kind.store_key(&object.key).into(), kind.resource.version.clone());
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.len() >= KEPT {
            done.clear();
        }
        let definition = Arc::downgrade(definition);
        done.insert(place, Done { definition, from: object.json.clone(), to: to.clone() });
    }
}

/// Objects from the store, in the version of the kind. Of most kinds they are left as they are: rendering does the rest.
pub async fn objects(server: &Server, kind: &Kind, objects: Vec<Arc<Object>>) -> Result<Vec<Arc<Object>>> {
    let Some(custom) = by_webhook(kind) else { return Ok(objects) };
    let definition = &custom.definition;
    let mut out = objects;
    let mut open = Vec::new();
    for (index, object) in out.iter_mut().enumerate() {
        if let Some(json) = server.conversions.find(kind, definition, object) {
            *object = with_json(object, json);
            continue;
        }
        let value = object.value();
        if value["apiVersion"] != kind.api_version {
            open.push((index, value));
        }
    }
    for page in open.chunks(PAGE) {
        let values = page.iter().map(|(_, value)| defaulted(definition, value.clone())).collect();
        let cluster = out[page[0].0].cluster().to_owned();
        let converted = ask(server, &cluster, definition, &kind.resource.version, values).await?;
        for ((index, _), value) in page.iter().zip(converted) {
            let object = &out[*index];
            let json = object::with_revision(&object::encode(&value), object.revision);
            server.conversions.keep(kind, definition, object, &json);
            out[*index] = with_json(object, json);
        }
    }
    Ok(out)
}

pub async fn object(server: &Server, kind: &Kind, object: &Arc<Object>) -> Result<Arc<Object>> {
    if by_webhook(kind).is_none() {
        return Ok(object.clone());
    }
    let mut converted = objects(server, kind, vec![object.clone()]).await?;
    Ok(converted.pop().unwrap_or_else(|| object.clone()))
}

fn with_json(object: &Object, json: Bytes) -> Arc<Object> {
    Arc::new(Object::new(object.key.clone(), json, object.created, object.revision))
}

/// What a verb answers, as far as it was read from the store.
pub async fn reply(call: &Call, reply: Reply) -> Result<Reply> {
    if by_webhook(&call.kind).is_none() {
        return Ok(reply);
    }
    Ok(match reply {
        Reply::Object { code, object: found } => {
            Reply::Object { code, object: object(&call.server, &call.kind, &found).await? }
        }
        Reply::List(mut list) => {
            list.items = objects(&call.server, &call.kind, list.items).await?;
            Reply::List(list)
        }
        other => other,
    })
}

/// Changes as a watcher of the kind's version sees them.
pub async fn changes(server: &Server, kind: &Kind, changes: Vec<Arc<Change>>) -> Result<Vec<Arc<Change>>> {
    if by_webhook(kind).is_none() {
        return Ok(changes);
    }
    let current = changes.iter().map(|change| change.object.clone()).collect();
    let before: Vec<_> = changes.iter().filter_map(|change| change.previous.clone()).collect();
    let current = objects(server, kind, current).await?;
    let mut before = objects(server, kind, before).await?.into_iter();
    let step = |(change, object): (&Arc<Change>, Arc<Object>)| {
        let previous = change.previous.as_ref().and_then(|_| before.next());
        Arc::new(Change::new(change.kind, object, previous))
    };
    Ok(changes.iter().zip(current).map(step).collect())
}

/// One value between two versions of a kind; of built-in kinds and simple definitions this is a matter of the moment.
pub async fn value(server: &Server, cluster: &str, from: &Kind, to: &Kind, mut value: Value) -> Result<Value> {
    if from.api_version == to.api_version {
        return Ok(value);
    }
    let Some(custom) = by_webhook(from) else {
        render::convert_value(from, &mut value, true).map_err(Status::internal)?;
        render::convert_value(to, &mut value, false).map_err(Status::internal)?;
        return Ok(value);
    };
    one(server, cluster, &custom.definition, &to.resource.version, value).await
}

/// From the version of the request to the one in the store.
pub async fn to_stored(call: &Call, value: &mut Value) -> Result<()> {
    let kind = &call.kind;
    match by_webhook(kind).filter(|_| kind.is_converted()) {
        Some(custom) => {
            let taken = value.take();
            *value = one(&call.server, &call.cluster, &custom.definition, &kind.stored_version, taken).await?;
            Ok(())
        }
        None => {
            render::convert_value(kind, value, true).map_err(Status::internal)?;
            // What another version does not know is filled in now, so that reads find it as it lies in the store.
            if let Some(custom) = kind.custom.as_ref().filter(|_| kind.is_converted()) {
                custom.definition.storage_version().default(value);
            }
            Ok(())
        }
    }
}

/// From the store to the version of the request.
pub async fn from_stored(call: &Call, mut value: Value) -> Result<Value> {
    let kind = &call.kind;
    if let Some(custom) = by_webhook(kind)
        && value["apiVersion"] != kind.api_version
    {
        let value = defaulted(&custom.definition, value);
        return one(&call.server, &call.cluster, &custom.definition, &kind.resource.version, value).await;
    }
    render::convert_value(kind, &mut value, false).map_err(Status::internal)?;
    Ok(value)
}

async fn one(
    server: &Server,
    cluster: &str,
    definition: &Arc<Definition>,
    version: &str,
    value: Value,
) -> Result<Value> {
    let mut converted = ask(server, cluster, definition, version, vec![value]).await?;
    converted.pop().ok_or_else(|| Status::internal("a conversion gave nothing"))
}

/// What comes from the store gets the defaults of the version in which it lies.
fn defaulted(definition: &Definition, mut value: Value) -> Value {
    let (_, version) = schema::catalogue::split_api_version(value["apiVersion"].as_str().unwrap_or_default());
    if let Some(version) = definition.version(version) {
        version.default(&mut value);
    }
    value
}

async fn ask(
    server: &Server,
    cluster: &str,
    definition: &Arc<Definition>,
    version: &str,
    values: Vec<Value>,
) -> Result<Vec<Value>> {
    let from = values.first().map(|value| value["apiVersion"].as_str().unwrap_or_default().to_owned());
    let failed = |why: String| {
        let what = if why.starts_with("returned ") { why } else { format!("failed: {why}") };
        let from = from.as_deref().unwrap_or_default();
        Status::new(500, "", format!("conversion webhook for {from}, Kind={} {what}", definition.names.kind))
    };
    if server.conversions.none {
        return Err(failed("nobody is asked to convert here: read it in the version that it is stored in".to_owned()));
    }
    let spoken = definition.conversion.review_version();
    let spoken = spoken.ok_or_else(|| failed("it accepts no known version of ConversionReview (v1)".to_owned()))?;
    let desired = schema::catalogue::api_version(&definition.group, version);
    let uid = uuid::Uuid::new_v4().to_string();
    let review = crd::conversion_review(&uid, spoken, &desired, &values);
    let endpoint = server.conversions.endpoint(cluster, definition);
    let answer = endpoint.post(server, &review, TIMEOUT, ANSWER).await.map_err(&failed)?;
    let mut converted = crd::converted(&uid, &desired, &values, &answer).map_err(&failed)?;
    if let Some(version) = definition.version(version) {
        converted.iter_mut().for_each(|value| {
            version.prune(value);
        });
    }
    Ok(converted)
}
