//! Targets for what comes over a socket: questions of DNS, frames between agent and keeper, and the path of a request.

use network::dns_message::{self, Data, Record, Reply};
use processes::frames::{self, Kind};
use request::{Path, Query, Route, Verb};

use crate::targets::Verdict;

/// The largest answer that fits into a datagram of any client, and into a stream.
const MAX_DATAGRAM: usize = 1232;
const MAX_STREAM: usize = 65_535;

pub(crate) fn dns_questions() -> Vec<Vec<u8>> {
    let query = |name: &str, kind: u16, edns: bool| {
        let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns)];
        for label in name.split('.') {
            bytes.push(label.len() as u8);
            bytes.extend(label.bytes());
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        if edns {
            bytes.extend([0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
        }
        bytes
    };
    vec![
        query("web.default.svc.cluster.local", 1, true),
        query("_http._tcp.web.default.svc.cluster.local", 33, false),
        query("10.0.0.10.in-addr.arpa", 12, true),
        query(&["a"; 126].join("."), 28, false),
    ]
}

/// Every answer repeats the number and the question, is no question itself, and fits where it is sent.
pub(crate) fn dns(input: &[u8]) -> Verdict {
    let asked = match dns_message::question(input) {
        Ok(asked) => asked,
        Err(None) => return Ok(()),
        Err(Some(answer)) => {
            let is_answer = answer.len() == 12 && answer[..2] == input[..2] && answer[2] & 0x80 != 0;
            return if is_answer { Ok(()) } else { Err(format!("refused with {answer:?}")) };
        }
    };
    let record = |n: u8| Record {
        name: if n.is_multiple_of(2) { asked.name.clone() } else { format!("other-{n}.example") },
        data: match n % 4 {
            0 => Data::A([10, 0, 0, n].into()),
            1 => Data::Cname(asked.name.clone()),
            2 => Data::Srv { port: 80, target: asked.name.clone() },
            _ => Data::Soa("cluster.local".into()),
        },
    };
    for (records, is_stream) in [(0, false), (3, false), (40, false), (40, true)] {
        let all: Vec<Record> = (0..records).map(record).collect();
        let reply = Reply { code: 0, answers: all.clone(), authority: Vec::new(), additional: all };
        let mut answer = dns_message::answer(input, &asked, &reply, is_stream);
        let most = if is_stream { MAX_STREAM } else { MAX_DATAGRAM };
        if answer.len() > most || answer[2] & 0x80 == 0 {
            return Err(format!("{records} records make an answer of {} bytes: {answer:?}", answer.len()));
        }
        if dns_message::question(&answer) != Err(None) {
            return Err(format!("the answer {answer:?} would be answered"));
        }
        // With the header of a question, it asks the same.
        answer[2..4].copy_from_slice(&[0, 0]);
        let again = dns_message::question(&answer).map_err(|_| format!("no question is in {answer:?}"))?;
        if (again.id, &again.name, again.kind) != (asked.id, &asked.name, asked.kind) {
            return Err(format!("{asked:?} became {again:?}"));
        }
    }
    Ok(())
}

pub(crate) fn keeper_frames() -> Vec<Vec<u8>> {
    let mut several = Vec::new();
    frames::frame(Kind::Json, br#"{"number":1,"ask":"list"}"#, &mut several);
    frames::frame(Kind::Stdin, b"", &mut several);
    frames::frame(Kind::Stderr, &[0xff; 300], &mut several);
    let mut one = Vec::new();
    frames::frame(Kind::Stdout, b"hello", &mut one);
    vec![several, one]
}

/// Frames are the same however their bytes arrive, and written again they are the bytes that were read.
pub(crate) fn keeper(input: &[u8]) -> Verdict {
    let read = |piece: usize| frames::cut(input.chunks(piece));
    let (whole, pieces) = (read(input.len().max(1)), read(3));
    if whole != pieces {
        return Err(format!("whole it is {whole:?}, in pieces {pieces:?}"));
    }
    let mut again = Vec::new();
    for frame in &whole.0 {
        frames::frame(frame.kind, &frame.bytes, &mut again);
    }
    if input.starts_with(&again) { Ok(()) } else { Err(format!("{:?} is written as {again:?}", whole.0)) }
}

pub(crate) fn request_paths() -> Vec<Vec<u8>> {
    let paths = [
        "/api/v1/namespaces/default/pods/web-0/log?container=c&follow=true",
        "/apis/apps/v1/watch/namespaces/shop/deployments?labelSelector=a%3Db,c!%3Dd&limit=500",
        "/clusters/root:org:team/api/v1/namespaces/default/status",
        "/clusters/root/clusters/root:a/apis/apps/v1",
        "/services/apiexport/root:a/looms/clusters/*/apis/loom.example.com/v1/looms",
        "/api/v1/nodes/n1/proxy/a/b%20c/?x=%2e%2e",
        "/openapi/v3/apis/apps/v1?hash=A",
        "/api/v1/namespaces/%2e%2e/configmaps/%00",
        "/",
    ];
    paths.map(|path| path.as_bytes().to_vec()).to_vec()
}

/// A path that is accepted names nothing outside of its workspace and namespace, and written anew it means the same.
pub(crate) fn request_path(input: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(input);
    let (path, query) = text.split_once('?').map_or((&*text, None), |(path, query)| (path, Some(query)));
    let query = Query::parse(query);
    if query.without("watch").has("watch") {
        return Err("a parameter is still there when it was taken away".to_owned());
    }
    if let Ok(uri) = text.parse()
        && let Some(meant) = request::meant(&uri)
        && (meant.path().len() >= uri.path().len() || meant.query() != uri.query())
    {
        return Err(format!("{uri} would mean {meant}"));
    }
    let Ok(parsed) = Path::parse(path) else { return Ok(()) };
    if !request::is_cluster(&parsed.cluster) {
        return Err(format!("{:?} is no workspace", parsed.cluster));
    }
    if let Route::Resource(target) = &parsed.route {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
            let method = http::Method::from_bytes(method.as_bytes()).map_err(|e| e.to_string())?;
            let _ = Verb::of(&method, target, &query);
        }
    }
    let mut segments = Vec::new();
    if let Some(door) = &parsed.view {
        segments.extend(["services", "apiexport", &door.provider, &door.export].map(str::to_owned));
    }
    if !parsed.bare {
        segments.extend(["clusters".to_owned(), parsed.cluster.clone()]);
    }
    segments.extend(behind_the_workspace(&parsed.route));
    if let Some(bad) = segments.iter().find(|s| matches!(&***s, "" | "." | "..") || s.contains(['/', '%', '\0'])) {
        return Err(format!("{bad:?} came through in {parsed:?}"));
    }
    let anew = segments.iter().map(|segment| format!("/{}", encoded(segment))).collect::<String>();
    match Path::parse(&anew) {
        Ok(again) if again == parsed => Ok(()),
        other => Err(format!("{path:?} is {parsed:?}, and {anew:?} is {other:?}")),
    }
}

fn behind_the_workspace(route: &Route) -> Vec<String> {
    let part = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    match route {
        Route::Other(path) => path.split('/').filter_map(part).collect(),
        Route::Discovery { core, group, version } => {
            let root = if *core { "api" } else { "apis" };
            [root, group, version].into_iter().filter_map(part).collect()
        }
        Route::Resource(target) => {
            let root = if target.group.is_empty() { "api" } else { "apis" };
            let watch = if target.watch { "watch" } else { "" };
            let namespaces = if target.namespace.is_empty() { "" } else { "namespaces" };
            let named = [root, &target.group, &target.version, watch, namespaces, &target.namespace];
            let rest = [&*target.resource, &target.name, &target.subresource];
            named.into_iter().chain(rest).chain(target.rest.iter().map(String::as_str)).filter_map(part).collect()
        }
    }
}

/// Percent-encoded wherever that is allowed, so that decoding is part of the round trip.
fn encoded(text: &str) -> String {
    let one =
        |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02x}") };
    text.bytes().map(one).collect()
}
