//! Delete one object or a collection: at once, gracefully, or when the last finalizer lets go.

use std::sync::Arc;

use cache::object;
use cache::object::Object;
use rules::strategy;
use schema::field::FieldError;
use schema::status::{Result, Status};
use serde_json::{Value, json};

use super::{
    create::metadata,
    get::reach,
    list, options,
    write::{self, Beside, Written},
};
use crate::{
    admission,
    call::Call,
    kinds::Kind,
    owner,
    owner::{To, Verdict},
    reply::Reply,
    turns::Turns,
};

const TRIES: usize = 30;

#[derive(Clone, Debug, Default)]
pub struct Options {
    grace: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
    /// `Background`, `Foreground`, `Orphan`.
    propagation: Option<String>,
    dry_run: bool,
}

pub async fn delete(call: &Call) -> Result<Reply> {
    let options = Options::read(call)?;
    options.warn(call);
    let name = call.target.name.as_str();
    if &*call.kind.collection == "scheduling.k8s.io/priorityclasses"
        && matches!(name, "system-node-critical" | "system-cluster-critical")
    {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Status::forbidden(call.kind.group(), call.kind.plural(), name, why));
    }
    reach(call, 0).await?;
    match remove(call, &call.key(), &call.target.name, &options).await? {
        Removed::Gone(object) if returns_object(call) => Ok(Reply::ok(object)),
        Removed::Gone(object) => Ok(Reply::deleted(&call.kind, &object)),
        Removed::Marked(object) => Ok(Reply::ok(object)),
    }
}

pub async fn delete_collection(call: &Call) -> Result<Reply> {
    let options = Options::read(call)?;
    options.warn(call);
    let found = list::found(call).await?;
    let mut turns = Turns::default();
    for object in &found.items {
        // A dry run waits for nothing.
        turns.pass().await;
        match remove(call, &object.key, object.name(), &options).await {
            Ok(_) => {}
            // Somebody else deleted it in the meantime: that is what was wanted.
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    // They are told as they were found.
    Ok(Reply::List(found))
}

pub enum Removed {
    Gone(Arc<Object>),
    /// It waits for its grace period or its finalizers.
    Marked(Arc<Object>),
}

/// Deletes, or marks for deletion, the object at `key`.
pub async fn remove(call: &Call, key: &str, name: &str, options: &Options) -> Result<Removed> {
    let kind = &call.kind;
    // Its node may take away an object whose end it was told before we do: that is what was wanted.
    let mut told: Option<Arc<Object>> = None;
    for _ in 0..TRIES {
        let old = call.server.cache.get(&kind.collection, key);
        let is_same = |old: &Arc<Object>, told: &Arc<Object>| old.created == told.created;
        if let Some(told) = told.take_if(|told| !old.as_ref().is_some_and(|old| is_same(old, told))) {
            return Ok(Removed::Gone(told));
        }
        let old = old.ok_or_else(|| Status::not_found(kind.group(), kind.plural(), name))?;
        let value = old.value();
        options.check(call, name, &value)?;
        admission::delete(call, &value, || options.to_value(call)).await?;
        let dry_run = options.dry_run || call.dry_run();
        match owner::ask(call, &old, &value, To::Nothing(options.to_value(call)), dry_run).await? {
            Verdict::Here => {}
            Verdict::Left => return Ok(Removed::Marked(old)),
            Verdict::Done(object) => return Ok(Removed::Gone(object)),
            Verdict::Again => continue,
        }
        let mut new = value.clone();
        let pending = mark(kind, &mut new, options);
        let is_graceful = default_grace(kind, &value).is_some();
        let hurried = is_graceful && !pending && new != value;
        if pending {
            if new == value {
                return Ok(Removed::Marked(old));
            }
            if dry_run {
                return Ok(Removed::Marked(Arc::new(write::shown(
                    key,
                    &object::encode(&new),
                    old.created,
                    old.revision,
                ))));
            }
            if let Written::Done(object) =
                write::put(call, key, &new, old.revision, old.created, Beside::default()).await?
            {
                return Ok(Removed::Marked(object));
            }
        } else {
            // What goes at once was never marked, where there is no grace period to end.
            let last = if is_graceful { &new } else { &value };
            let gone = |revision| Arc::new(write::shown(key, &object::encode(last), old.created, revision));
            if dry_run {
                return Ok(Removed::Gone(gone(old.revision)));
            }
            let mut at = old.revision;
            if hurried {
                // Whoever waits for the end of the grace period is told that it has come, and then that the object is gone.
                match write::put(call, key, &new, at, old.created, Beside::default()).await? {
                    Written::Done(object) => {
                        at = object.revision;
                        told = Some(object);
                    }
                    Written::Conflict => continue,
                }
            }
            let released = admission::release(call, &value);
            if write::remove(call, key, at, released).await?.is_some() {
                return Ok(Removed::Gone(gone(old.revision)));
            }
        }
    }
    Err(Status::modified(kind.group(), kind.plural(), name))
}

/// Puts the marks of deletion on an object. True if it has to wait for something, false if it can go now.
pub fn mark(kind: &Kind, value: &mut Value, options: &Options) -> bool {
    let already = value["metadata"]["deletionTimestamp"].is_string();
    let grace = match (default_grace(kind, value), options.grace) {
        // Kinds without graceful deletion, and pods that nobody runs, have nothing to finish.
        (None | Some(0), _) => 0,
        // A negative period means the shortest there is.
        (Some(_), Some(asked)) if asked < 0 => 1,
        (Some(default), asked) => asked.unwrap_or(default),
    };
    // A definition that is marked has its own finalizer and no use for those of the garbage collector.
    let ours = kind.is_definition() && !already;
    let none = Options::default();
    let mut finalizers = finalizers(kind, value, if ours { &none } else { options });
    if ours {
        // The objects of a definition go before it.
        let cleanup = "customresourcecleanup.apiextensions.k8s.io";
        if !finalizers.iter().any(|f| f == cleanup) {
            finalizers.push(cleanup.into());
        }
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        rules::crd::terminating(value, "InstanceDeletionPending", message, &clock::now());
    }
    let namespace_pending = &*kind.collection == "core/namespaces"
        && value["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let generation = value["metadata"]["generation"].as_i64();
    let metadata = metadata(value);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.clone().into());
    }
    if already {
        // Once marked, the time can only be brought forward.
        let have = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        if grace < have {
            metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
            metadata.insert("deletionTimestamp".into(), clock::at(clock::unix() + grace).into());
        }
        let left = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        return left > 0 || !finalizers.is_empty() || namespace_pending;
    }
    metadata.insert("deletionTimestamp".into(), clock::at(clock::unix() + grace).into());
    if namespace_pending {
        // Namespaces are finalised, not killed: no grace period is written for them.
        value["status"]["phase"] = "Terminating".into();
        return true;
    }
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    // A definition is marked by a hand of its own.
    if let Some(generation) = generation.filter(|generation| *generation > 0 && !kind.is_definition()) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
    grace > 0 || !finalizers.is_empty()
}

/// How long an object is given to end by itself; `None` for kinds that just go.
fn default_grace(kind: &Kind, value: &Value) -> Option<i64> {
    if kind.custom.is_some() { None } else { strategy::default_grace_period(&kind.resource, value) }
}

/// The finalizers that an object has after a deletion with these options.
fn finalizers(kind: &Kind, value: &Value, options: &Options) -> Vec<String> {
    let mut list: Vec<String> = value["metadata"]["finalizers"]
        .as_array()
        .map(|all| all.iter().filter_map(|f| f.as_str().map(str::to_owned)).collect())
        .unwrap_or_default();
    let has = |list: &[String], name: &str| list.iter().any(|f| f == name);
    let (orphan, foreground) = match options.propagation.as_deref() {
        Some("Orphan") => (true, false),
        Some("Foreground") => (false, true),
        Some(_) => (false, false),
        None => {
            let default = strategy::default_propagation(kind.group(), kind.plural());
            (has(&list, "orphan") || default == strategy::Propagation::Orphan, has(&list, "foregroundDeletion"))
        }
    };
    list.retain(|f| f != "orphan" && f != "foregroundDeletion");
    if orphan {
        list.push("orphan".into());
    }
    if foreground {
        list.push("foregroundDeletion".into());
    }
    list
}

/// Kinds whose deletion answers with the object instead of a Status, as upstream's do.
fn returns_object(call: &Call) -> bool {
    matches!(
        &*call.kind.collection,
        "core/pods"
            | "core/podtemplates"
            | "core/persistentvolumes"
            | "core/persistentvolumeclaims"
            | "core/resourcequotas"
            | "core/serviceaccounts"
            | "core/services"
            | "storage.k8s.io/storageclasses"
            | "storage.k8s.io/csidrivers"
            | "storage.k8s.io/csinodes"
            | "storage.k8s.io/volumeattachments"
            | "storage.k8s.io/volumeattributesclasses"
            | "resource.k8s.io/deviceclasses"
            | "resource.k8s.io/resourceclaims"
            | "resource.k8s.io/resourceclaimtemplates"
            | "resource.k8s.io/resourceslices"
            | "networking.k8s.io/servicecidrs"
            | "networking.k8s.io/ipaddresses"
    )
}

impl Options {
    fn read(call: &Call) -> Result<Self> {
        let mut value = json!({});
        if call.body.is_empty() {
            let query = &call.query;
            for name in ["propagationPolicy", "gracePeriodSeconds", "orphanDependents"] {
                if query.has(name) {
                    let text = query.get(name);
                    value[name] = match name {
                        "gracePeriodSeconds" => options::int(text)?.into(),
                        "orphanDependents" => query.flag(name).into(),
                        _ => text.into(),
                    };
                }
            }
            for name in ["uid", "resourceVersion"] {
                if !query.get(name).is_empty() {
                    value["preconditions"][name] = query.get(name).into();
                }
            }
            value["dryRun"] = query.all("dryRun").collect::<Vec<_>>().into();
        } else {
            value = write::receive_options(call, "DeleteOptions")?;
        }
        Self::from_value(&value)
    }

    /// From a DeleteOptions object, as an eviction carries one too.
    pub fn from_value(value: &Value) -> Result<Self> {
        let mut errors = Vec::new();
        let policy = value["propagationPolicy"].as_str();
        if let Some(policy) = policy {
            if !matches!(policy, "Foreground" | "Background" | "Orphan") {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", &policy.into(), &supported));
            } else if !value["orphanDependents"].is_null() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid("propagationPolicy", &policy.into(), why));
            }
        }
        let runs: Vec<&str> =
            value["dryRun"].as_array().map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
        if runs.iter().any(|run| *run != "All") {
            errors.push(FieldError::not_supported("dryRun", &runs.clone().into(), &["All"]));
        }
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        let propagation = match (policy, value["orphanDependents"].as_bool()) {
            (Some(policy), _) => Some(policy.to_owned()),
            (None, Some(true)) => Some("Orphan".to_owned()),
            (None, Some(false)) => Some("Background".to_owned()),
            (None, None) => None,
        };
        let text = |v: &Value| v.as_str().map(str::to_owned);
        Ok(Self {
            grace: value["gracePeriodSeconds"].as_i64(),
            uid: text(&value["preconditions"]["uid"]),
            version: text(&value["preconditions"]["resourceVersion"]),
            propagation,
            dry_run: runs.contains(&"All"),
        })
    }

    /// Jobs leave their pods behind for whoever does not say otherwise, and few expect that.
    fn warn(&self, call: &Call) {
        if &*call.kind.collection == "batch/jobs" && self.propagation.is_none() {
            call.warn(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them \
                 or set propagationPolicy=Orphan to suppress this warning",
            );
        }
    }

    /// The DeleteOptions object that they are.
    fn to_value(&self, call: &Call) -> Value {
        let mut value = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        for (field, given) in [("uid", &self.uid), ("resourceVersion", &self.version)] {
            if let Some(given) = given {
                value["preconditions"][field] = given.as_str().into();
            }
        }
        if let Some(grace) = self.grace {
            value["gracePeriodSeconds"] = grace.into();
        }
        if let Some(propagation) = &self.propagation {
            value["propagationPolicy"] = propagation.as_str().into();
        }
        if self.dry_run || call.dry_run() {
            value["dryRun"] = json!(["All"]);
        }
        value
    }

    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    pub fn background() -> Self {
        Self { propagation: Some("Background".into()), ..Self::default() }
    }

    pub fn foreground() -> Self {
        Self { propagation: Some("Foreground".into()), ..Self::default() }
    }

    /// Deletes only this very object.
    pub fn with_uid(mut self, uid: &str) -> Self {
        self.uid = Some(uid.to_owned());
        self
    }

    /// Namespaces and definitions are checked by code of their own, which has its own words.
    fn check_finalised(&self, call: &Call, name: &str, value: &Value) -> Result<()> {
        let wanted = [("UID", "uid", &self.uid), ("ResourceVersion", "resourceVersion", &self.version)];
        for (what, field, wanted) in wanted {
            let have = value["metadata"][field].as_str().unwrap_or_default();
            if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != have) {
                let why =
                    format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {have}");
                return Err(Status::conflict(call.kind.group(), call.kind.plural(), name, &why));
            }
        }
        Ok(())
    }

    fn check(&self, call: &Call, name: &str, value: &Value) -> Result<()> {
        let kind = &call.kind;
        let have = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
        if matches!(&*kind.collection, "core/namespaces") || kind.is_definition() {
            return self.check_finalised(call, name, value);
        }
        let refuse = |why: String| Err(Status::conflict(kind.group(), kind.name(), name, &why));
        if let Some(uid) = self.uid.as_ref().filter(|uid| **uid != have("uid")) {
            return refuse(format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                have("uid")
            ));
        }
        if let Some(version) = self.version.as_ref().filter(|v| **v != have("resourceVersion")) {
            return refuse(format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
                 The object might have been modified",
                have("resourceVersion")
            ));
        }
        Ok(())
    }
}
