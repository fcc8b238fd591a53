//! FlowSchemas and PriorityLevelConfigurations: which level a request belongs to, and which flow within it.
//!
//! The FlowSchemas of a workspace classify the requests to that workspace. What a level means stays inside the
//! workspace: its shares decide who of the workspace's own requests gets the next seat, and never how many seats the
//! workspace has beside others. Only in the root workspace does an exempt level give seats that nobody else takes.

mod defaults;
mod schema;
mod upkeep;

use std::{
    collections::HashMap,
    fmt::Write,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

pub use defaults::objects;
pub use schema::Schema;
pub use upkeep::{furnish, run};

use crate::{controllers::queue::Queue, workspaces::seen_from};
use cache::{Change, ChangeKind, Observer};
use flow::{Flow, Level};
use identity::{Attributes, User};
use request::ROOT;

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
pub const SCHEMAS: &str = "flowcontrol.apiserver.k8s.io/flowschemas";
pub const LEVELS: &str = "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations";

const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// An exempt level of a workspace other than root counts as one with this many shares.
const MOST_SHARES: u32 = 1000;

/// A PriorityLevelConfiguration as far as it means something here.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityLevel {
    pub name: Box<str>,
    uid: HeaderValue,
    pub is_exempt: bool,
    pub shares: u32,
    /// A request that finds no seat is refused at once.
    pub rejects: bool,
}

impl PriorityLevel {
    fn read(name: &str, value: &Value) -> Self {
        let spec = &value["spec"];
        let is_exempt = spec["type"] == "Exempt";
        let part = if is_exempt { &spec["exempt"] } else { &spec["limited"] };
        let shares = part["nominalConcurrencyShares"].as_u64().and_then(|n| u32::try_from(n).ok());
        Self {
            name: name.into(),
            uid: uid(value),
            is_exempt,
            shares: shares.unwrap_or(if is_exempt { 0 } else { 30 }),
            rejects: spec["limited"]["limitResponse"]["type"] == "Reject",
        }
    }
}

fn uid(value: &Value) -> HeaderValue {
    let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
    HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""))
}

#[derive(Clone, Default)]
struct Workspace {
    schemas: HashMap<Box<str>, Arc<Schema>>,
    levels: HashMap<Box<str>, Arc<PriorityLevel>>,
    /// Schemas whose level exists, in the order in which they are tried.
    order: Arc<Vec<(Arc<Schema>, Arc<PriorityLevel>)>>,
}

impl Workspace {
    fn arrange(&mut self) {
        let level = |schema: &Arc<Schema>| Some((schema.clone(), self.levels.get(&schema.level)?.clone()));
        let mut order: Vec<_> = self.schemas.values().filter_map(level).collect();
        order.sort_by(|(one, _), (other, _)| (one.precedence, &one.name).cmp(&(other.precedence, &other.name)));
        self.order = Arc::new(order);
    }
}

#[derive(Default)]
pub struct Flows {
    workspaces: RwLock<HashMap<Box<str>, Workspace>>,
    /// Workspaces whose schemas may need another status.
    changed: Queue,
}

/// In the extensions of a request: what it counts as, once that is known. Answers tell it, also those that refuse.
#[derive(Clone, Default)]
pub struct Slot(Arc<OnceLock<Class>>);

impl Slot {
    pub fn class(&self) -> Option<&Class> {
        self.0.get()
    }

    /// Classifies a request, once it is known who asks.
    pub fn fill(&self, flows: &Flows, cluster: &str, user: &User, attributes: &Attributes) {
        if self.0.get().is_none()
            && let Some(class) = flows.classify(cluster, user, attributes)
        {
            let _ = self.0.set(class);
        }
    }
}

/// What a request counts as.
pub struct Class {
    schema: Arc<Schema>,
    level: Arc<PriorityLevel>,
    flow: String,
    is_root: bool,
}

impl Class {
    /// Tells the client what its request counted as.
    pub fn tell(&self, headers: &mut HeaderMap) {
        headers.insert(SCHEMA_HEADER, self.schema.uid.clone());
        headers.insert(LEVEL_HEADER, self.level.uid.clone());
    }

    /// Where a request takes its seat. Exempt requests to root have seats beside all others.
    pub fn pool(&self, otherwise: Level) -> Level {
        if self.is_root && self.level.is_exempt { Level::System } else { otherwise }
    }

    pub fn flow(&self) -> Flow<'_> {
        let (shares, rejects) = match self.level.is_exempt {
            true => (MOST_SHARES, false),
            false => (self.level.shares.clamp(1, MOST_SHARES), self.level.rejects),
        };
        Flow { name: &self.flow, level: &self.level.name, shares, waits: !rejects }
    }
}

impl Flows {
    pub fn observer(self: &Arc<Self>) -> Observer {
        let flows = self.clone();
        Box::new(move |collection: &str, change: &Arc<Change>| {
            if matches!(collection, SCHEMAS | LEVELS) {
                flows.observe(collection, change);
            }
        })
    }

    fn observe(&self, collection: &str, change: &Change) {
        let object = &change.object;
        let value = (change.kind != ChangeKind::Deleted && object.acts_here()).then(|| object.value());
        let mut workspaces = self.workspaces.write().unwrap_or_else(PoisonError::into_inner);
        let workspace = workspaces.entry(object.cluster().into()).or_default();
        let name = object.name();
        match (collection, value) {
            (SCHEMAS, Some(value)) => drop(workspace.schemas.insert(name.into(), Arc::new(Schema::read(name, &value)))),
            (SCHEMAS, None) => drop(workspace.schemas.remove(name)),
            (_, Some(value)) => drop(workspace.levels.insert(name.into(), Arc::new(PriorityLevel::read(name, &value)))),
            (_, None) => drop(workspace.levels.remove(name)),
        }
        workspace.arrange();
        if workspace.schemas.is_empty() && workspace.levels.is_empty() {
            workspaces.remove(object.cluster());
        }
        self.changed.push(object.cluster());
    }

    fn has(&self, cluster: &str) -> bool {
        self.workspaces.read().unwrap_or_else(PoisonError::into_inner).contains_key(cluster)
    }

    /// What a request counts as. Nothing in a workspace that has no FlowSchemas.
    fn classify(&self, cluster: &str, user: &User, attributes: &Attributes) -> Option<Class> {
        let order = {
            let workspaces = self.workspaces.read().unwrap_or_else(PoisonError::into_inner);
            workspaces.get(cluster)?.order.clone()
        };
        let user = seen_from(user, cluster);
        let (schema, level) = order.iter().find(|(schema, _)| schema.matches(&user, attributes))?;
        let flow = format!("{}/{}/{}", level.name, schema.name, schema.distinguish(&user, attributes));
        Some(Class { schema: schema.clone(), level: level.clone(), flow, is_root: cluster == ROOT })
    }

    /// Whether a level of that name exists.
    fn has_level(&self, cluster: &str, name: &str) -> bool {
        let workspaces = self.workspaces.read().unwrap_or_else(PoisonError::into_inner);
        workspaces.get(cluster).is_some_and(|workspace| workspace.levels.contains_key(name))
    }

    /// For `/metrics`: how the seats of the root workspace are shared out when all levels want them.
    pub fn text(&self, seats: usize, out: &mut String) {
        let workspaces = self.workspaces.read().unwrap_or_else(PoisonError::into_inner);
        let Some(root) = workspaces.get(ROOT) else { return };
        let mut levels: Vec<_> = root.levels.values().collect();
        levels.sort_by(|one, other| one.name.cmp(&other.name));
        let all: u64 = levels.iter().map(|level| u64::from(level.shares)).sum();
        let _ = writeln!(
            out,
            "# HELP apiserver_flowcontrol_nominal_limit_seats Seats of a priority level of the root workspace by its shares.\n\
             # TYPE apiserver_flowcontrol_nominal_limit_seats gauge"
        );
        for level in levels {
            let limit = (seats as u64 * u64::from(level.shares)).div_ceil(all.max(1));
            let name = &level.name;
            let _ = writeln!(out, "apiserver_flowcontrol_nominal_limit_seats{{priority_level=\"{name}\"}} {limit}");
        }
    }
}
