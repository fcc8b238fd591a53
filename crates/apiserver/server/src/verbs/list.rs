//! List objects, in pages that belong to one revision.

use std::sync::Arc;

use base64::{
    Engine,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use cache::object::Object;
use cache::{Ordered, Snapshot, object};
use schema::status::{Result, Status};
use serde::{Deserialize, Serialize};
use store::Revision;

use super::{
    get::reach,
    options::{self, Version},
    selection::Selection,
};
use crate::{
    call::Call,
    reply::{List, Reply},
    turns::Turns,
    webhooks::convert,
    workspaces::wildcard,
};

/// Where the next page begins. Clients must not look inside, but upstream's is JSON in base64 too.
#[derive(Serialize, Deserialize)]
struct Continue {
    #[serde(default)]
    v: String,
    /// Below 0, as upstream has it where a list need not be of one revision, it is the newest.
    #[serde(default)]
    rv: i64,
    /// The key of the last object shown, behind the collection's prefix.
    #[serde(default)]
    start: String,
}

const VERSION: &str = "meta.k8s.io/v1";
/// The revision in a token that goes on with the newest state, whatever the pages before it were of.
const NEWEST: i64 = -1;
/// How many objects a webhook converts at once while some of them are looked for.
const CONVERTED: usize = 500;

/// As lenient as Go's decoder about the last bits.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

pub async fn list(call: &Call) -> Result<Reply> {
    found(call).await.map(Reply::List)
}

/// The objects that the query asks for.
pub async fn found(call: &Call) -> Result<List> {
    let limit = options::limit(&call.query)?;
    let version = options::list(&call.query)?;
    let selection = Selection::of(call)?;
    let token = call.query.get("continue");
    if !token.is_empty() {
        if !matches!(version, Version::Latest | Version::Any) {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        let from = decode(token)?;
        let after = format!("{}{}", selection.prefix(), from.start);
        let snapshot = match Revision::try_from(from.rv) {
            Ok(revision) => at(call, revision).await?.ok_or_else(|| page_expired(from.start))?,
            Err(_) => {
                reach(call, 0).await?;
                call.snapshot()
            }
        };
        return page(call, &selection, snapshot, &after, limit).await;
    }
    // Whoever takes any version gets what is at hand, and gets it whole.
    let limit = if version == Version::Any { 0 } else { limit };
    let snapshot = match version {
        Version::Latest | Version::Any => {
            reach(call, 0).await?;
            call.snapshot()
        }
        Version::NotOlderThan(revision) => {
            reach(call, revision).await?;
            call.snapshot()
        }
        Version::Exactly(revision) => {
            // That very version is not worth waiting for.
            reach(call, revision).await.map_err(|status| status.retry_after(0))?;
            at(call, revision).await?.ok_or_else(version_expired)?
        }
    };
    page(call, &selection, snapshot, "", limit).await
}

async fn page(call: &Call, selection: &Selection, snapshot: Snapshot, after: &str, limit: usize) -> Result<List> {
    let room = if limit == 0 { usize::MAX } else { limit };
    if selection.sees_converted(&call.kind) {
        return converted_page(call, selection, snapshot, after, room).await;
    }
    let mut objects = snapshot.items.range(selection.prefix(), after);
    let mut turns = Turns::default();
    let mut items: Vec<Arc<Object>> = Vec::new();
    let mut more = false;
    let everything = selection.is_everything();
    for object in objects.by_ref() {
        if !everything {
            turns.pass().await;
            if !selection.matches(&call.kind, object) {
                continue;
            }
        }
        if items.len() == room {
            more = true;
            break;
        }
        items.push(object.clone());
    }
    let mut list = List { items, revision: snapshot.revision, next: None, remaining: None };
    if more {
        list.next = next_of(call, selection, &list);
        list.remaining = everything.then(|| objects.count() + 1);
    }
    annotate(call, &mut list).await;
    Ok(list)
}

/// The same where a webhook has to convert objects before it is known whether they are wanted.
async fn converted_page(
    call: &Call,
    selection: &Selection,
    snapshot: Snapshot,
    after: &str,
    room: usize,
) -> Result<List> {
    let mut turns = Turns::default();
    let mut list = List { items: Vec::new(), revision: snapshot.revision, next: None, remaining: None };
    let mut candidates = Vec::new();
    let mut objects = snapshot.items.range(selection.prefix(), after).peekable();
    while let Some(object) = objects.next() {
        turns.pass().await;
        if selection.might_match(object) {
            candidates.push(object.clone());
        }
        if candidates.len() < CONVERTED && objects.peek().is_some() {
            continue;
        }
        let converted = convert::objects(&call.server, &call.kind, std::mem::take(&mut candidates)).await?;
        let wanted = converted.into_iter().filter(|object| selection.matches(&call.kind, object));
        list.items.extend(wanted);
        if list.items.len() > room {
            list.items.truncate(room);
            list.next = next_of(call, selection, &list);
            break;
        }
    }
    annotate(call, &mut list).await;
    Ok(list)
}

/// The token for what follows a page.
fn next_of(call: &Call, selection: &Selection, page: &List) -> Option<String> {
    call.server.cache.note_page(page.revision);
    let last = page.items.last()?;
    let start = last.key.strip_prefix(selection.prefix()).unwrap_or(&last.key).to_owned();
    Some(encode(start, i64::try_from(page.revision).unwrap_or(i64::MAX)))
}

/// Across workspaces, objects say which one is theirs.
async fn annotate(call: &Call, list: &mut List) {
    if !call.is_across() {
        return;
    }
    let mut turns = Turns::default();
    for object in &mut list.items {
        turns.pass().await;
        *object = wildcard::annotated(object);
    }
}

/// The collection as it was: undone from the recent history, or read from the store. None if that is too long ago.
async fn at(call: &Call, revision: Revision) -> Result<Option<Snapshot>> {
    let cache = &call.server.cache;
    if revision < cache.compacted() || revision < call.server.workspaces.born(&call.cluster) {
        return Ok(None);
    }
    if let Ok(items) = cache.collection(&call.kind.collection).at(revision) {
        return Ok(Some(Snapshot { items, revision }));
    }
    let range = store::Range::prefix(&format!("{}/", call.kind.collection));
    let page = match cache.store().range(range, 0, Some(revision)).await {
        Err(store::Error::Compacted { .. }) => return Ok(None),
        page => page.map_err(|error| crate::unavailable(&error))?,
    };
    let mut items = Ordered::default();
    for entry in page.entries {
        let key = entry.key[call.kind.collection.len() + 1..].into();
        let json = object::with_revision(&entry.value, entry.modified);
        items.insert(Arc::new(Object::new(key, json, entry.created, entry.modified)));
    }
    Ok(Some(Snapshot { items, revision }))
}

fn version_expired() -> Status {
    Status::expired("The resourceVersion for the provided list is too old.")
}

/// The page after that key is gone as it was. The client may go on there with things as they are.
fn page_expired(start: String) -> Status {
    Status::expired_page(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        encode(start, NEWEST),
    )
}

fn encode(start: String, rv: i64) -> String {
    let token = Continue { v: VERSION.into(), rv, start };
    BASE64.encode(serde_json::to_vec(&token).unwrap_or_default())
}

fn decode(token: &str) -> Result<Continue> {
    let refuse = |why: String| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = BASE64.decode(token.trim_end_matches('=')).map_err(|error| match error {
        base64::DecodeError::InvalidByte(at, _) => refuse(format!("illegal base64 data at input byte {at}")),
        base64::DecodeError::InvalidLength(length) => {
            refuse(format!("illegal base64 data at input byte {}", length.saturating_sub(1)))
        }
        other => refuse(other.to_string()),
    })?;
    match bytes.first() {
        Some(b'{') => {}
        // serde would read a list as well, one field after the other.
        Some(b'[') => {
            return Err(refuse("json: cannot unmarshal array into Go value of type storage.continueToken".into()));
        }
        first => {
            let first = first.map_or(' ', |b| char::from(*b));
            return Err(refuse(format!("invalid character '{first}' looking for beginning of value")));
        }
    }
    let from: Continue = serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
    if from.v != VERSION {
        return Err(refuse(format!("server does not recognize this encoded version {}", from.v)));
    }
    if from.rv == 0 {
        return Err(refuse(format!("incorrect encoded start resourceVersion (version {VERSION})")));
    }
    if from.start.is_empty() {
        return Err(refuse(format!("encoded start key empty (version {VERSION})")));
    }
    // A key has no parts that lead elsewhere. An empty one is where a cluster-wide object of some workspace has no namespace.
    if from.start.split('/').any(|part| matches!(part, "." | "..")) {
        return Err(refuse(from.start));
    }
    Ok(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_lead_nowhere() {
        for (token, why) in [
            (
                r#"{"v":"meta.k8s.io/v1","rv":0,"start":"x"}"#,
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (r#"{"v":"foo","rv":1,"start":"x"}"#, "server does not recognize this encoded version foo"),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":""}"#, "encoded start key empty (version meta.k8s.io/v1)"),
            (r#"{"v":"meta.k8s.io/v1","rv":5,"start":"../x"}"#, "../x"),
            ("{}", "server does not recognize this encoded version "),
            ("[]", "json: cannot unmarshal array into Go value of type storage.continueToken"),
            ("abc", "invalid character 'a' looking for beginning of value"),
        ] {
            let refusal = decode(&BASE64.encode(token)).err().unwrap();
            assert_eq!(refusal.message, format!("invalid continue token: continue key is not valid: {why}"));
        }
        assert_eq!(
            decode("%%").err().unwrap().message,
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"
        );
        assert!(decode("zzzzx").err().unwrap().message.ends_with("illegal base64 data at input byte 4"));
        let newest = decode(&BASE64.encode(r#"{"v":"meta.k8s.io/v1","rv":-1,"start":"ns/x"}"#)).unwrap();
        assert_eq!((newest.rv, newest.start.as_str()), (-1, "ns/x"));
        assert!(decode(&BASE64.encode(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"root//x"}"#)).is_ok());
        let expired = page_expired("ns/x".into());
        let next = decode(&expired.next.unwrap()).unwrap();
        assert_eq!((expired.code, next.rv, next.start.as_str()), (410, NEWEST, "ns/x"));
    }
}
