//! A sample of every message, for round trips, golden bytes and fuzzing.

use bytes::Bytes;

use crate::message::{Batch, CloseReason, Differences, Hello, Message, Report, Welcome};
use crate::tree::{NodeSummary, Prefix};
use crate::types::{Key, Position, Version};
use crate::walk::TreeNode;

const POSITION: Position = Position { incarnation: u64::MAX, revision: 1 << 40 };
const VERSION: Version = Version { epoch: 1_760_000_000_000, counter: 3 };

/// Every kind of message, with optional parts present and absent and numbers at their limits. The names are unique.
pub fn messages() -> Vec<(&'static str, Message)> {
    let mut all = hellos();
    all.extend(walks());
    all.extend(deliveries());
    all.extend(reports());
    all.extend([
        ("heartbeat", Message::Heartbeat),
        ("open", Message::Open { ticket: u128::MAX - 1 }),
        ("close", Message::Close { reason: CloseReason::Silent, retry_after: Some(0) }),
        ("close-longest", Message::Close { reason: CloseReason::Shared, retry_after: Some(u64::MAX - 1) }),
        ("close-without-reason", Message::Close { reason: CloseReason::Other, retry_after: None }),
        ("unknown", Message::Unknown(200)),
    ]);
    all
}

fn hellos() -> Vec<(&'static str, Message)> {
    let hello = Hello {
        min_version: 1,
        max_version: 9,
        features: 5,
        seen: Some(POSITION),
        floor: VERSION,
        root: u128::MAX - 7,
        holds: 3,
        start: u64::MAX - 1,
        before: vec![7, u64::MAX],
        place: "machine:/data".into(),
    };
    let first = Hello {
        features: 0,
        seen: None,
        floor: Version::default(),
        root: 0,
        holds: 0,
        start: 0,
        before: vec![],
        place: String::new(),
        ..hello.clone()
    };
    let welcome = Welcome { version: 1, features: 0, session: 9, position: POSITION, through: Some(0) };
    vec![
        (
            "hello-without-start",
            Message::Hello(Hello { start: 0, before: vec![], place: String::new(), ..hello.clone() }),
        ),
        ("hello-without-position", Message::Hello(Hello { seen: None, ..hello.clone() })),
        ("hello-first", Message::Hello(first)),
        ("hello", Message::Hello(hello)),
        ("welcome", Message::Welcome(welcome.clone())),
        ("welcome-unknown-history", Message::Welcome(Welcome { through: None, ..welcome })),
    ]
}

fn walks() -> Vec<(&'static str, Message)> {
    let prefix = |depth, bits| Prefix::new(depth, bits).unwrap_or(Prefix::ROOT);
    let (shallow, odd, deepest) = (prefix(1, 3 << 60), prefix(3, 0xabc << 52), prefix(16, 77));
    let mut children = [NodeSummary { count: 300, digest: 5 }; 16];
    children[4] = NodeSummary::default();
    let nodes = vec![
        TreeNode::Children(shallow, Box::new(children)),
        TreeNode::Entries(deepest, vec![(77, 1), (77, u128::MAX)]),
        TreeNode::Entries(Prefix::ROOT, vec![]),
    ];
    let differences = Differences {
        walk: 2,
        want: vec![Prefix::ROOT, shallow],
        all: vec![odd, deepest],
        need: vec![0, 1, u64::MAX],
        extra: vec!["apps/deployments/n/a".into(), "core/namespaces//größe".into()],
        done: false,
    };
    vec![
        ("nodes", Message::Nodes { walk: 2, nodes }),
        ("nodes-empty", Message::Nodes { walk: 0, nodes: vec![] }),
        ("differences", Message::Differences(differences)),
        ("differences-none", Message::Differences(Differences { walk: 3, done: true, ..Default::default() })),
    ]
}

fn deliveries() -> Vec<(&'static str, Message)> {
    let (a, b): (Key, Key) = ("apps/deployments/n/a".into(), "core/configmaps/n/größe".into());
    let changes = vec![
        (a.clone(), Some(Bytes::from_static(b"{}"))),
        (b.clone(), None),
        (b, Some(Bytes::new())),
        ("core/configmaps/n/long".into(), Some(Bytes::from(vec![b'x'; 300]))),
    ];
    let batch = Batch { session: 1, seq: 2, position: POSITION, adopt: false, changes };
    let keys = vec![(a.clone(), "no".into()), ("core/configmaps/n/b".into(), "zu groß".into())];
    vec![
        ("batch-adopt", Message::Batch(Batch { adopt: true, changes: vec![], ..batch.clone() })),
        ("batch", Message::Batch(batch)),
        ("ack", Message::Ack { session: 1, seq: 0, holds: 3 }),
        ("nack", Message::Nack { session: 1, seq: 2, keys, reason: "disk full".into() }),
        ("nack-keys", Message::Nack { session: 1, seq: 2, keys: vec![(a, "no".into())], reason: String::new() }),
    ]
}

fn reports() -> Vec<(&'static str, Message)> {
    let key: Key = "apps/deployments/n/a".into();
    let report = Report { key, version: VERSION, state: None };
    let reports = vec![
        report.clone(),
        Report { state: Some(Bytes::new()), ..report.clone() },
        Report { state: Some(Bytes::from_static(b"{\"status\":{}}")), ..report },
    ];
    vec![("report", Message::Report { seq: 4, reports }), ("report-ack", Message::ReportAck { seq: 4, at: POSITION })]
}
