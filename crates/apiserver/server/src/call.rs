//! One request to a resource, with everything a verb needs to answer it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cache::Snapshot;
use cache::object::Object;
use http::HeaderMap;
use identity::User;
use request::{Query, Target, Verb};
use schema::field::{FieldError, FieldErrorKind};
use schema::status::{Result, Status};
use store::Op;

use crate::{
    Server, admission::Notes, exports::View, kinds::Kind, negotiate::Accept, warnings::Warnings,
    workspaces::wildcard::EVERYWHERE,
};

pub struct Call {
    pub server: Arc<Server>,
    pub cluster: String,
    pub kind: Arc<Kind>,
    pub target: Target,
    pub query: Query,
    pub accept: Accept,
    pub headers: HeaderMap,
    pub user: User,
    /// What the client asked for; nothing if the server itself acts.
    pub verb: Option<Verb>,
    pub body: Bytes,
    /// Told to the client in Warning headers.
    pub warnings: Mutex<Warnings>,
    pub notes: Notes,
    /// The provider of an export asks, and reaches only what the export lets it.
    pub view: Option<View>,
    /// Committed with the write, whatever that is.
    pub also: Vec<Op>,
    /// The status is another machine's word. It has to be valid, but need not be one that may follow the status before.
    pub relays_status: bool,
}

impl Call {
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).add(text.into());
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// Where the object that the path names lies in its collection.
    pub fn key(&self) -> String {
        self.kind.key(&self.cluster, &self.target.namespace, &self.target.name)
    }

    /// What is answered says of which workspace it is.
    pub fn is_across(&self) -> bool {
        self.cluster == EVERYWHERE || self.view.is_some()
    }

    /// All keys that the path covers begin with this.
    pub fn prefix(&self) -> String {
        request::prefix(&self.cluster, &self.target.namespace)
    }

    pub fn not_found(&self) -> Status {
        Status::not_found(self.kind.group(), self.kind.plural(), &self.target.name)
    }

    pub fn get(&self) -> Option<Arc<Object>> {
        self.server.cache.get(&self.kind.collection, &self.key())
    }

    pub fn snapshot(&self) -> Snapshot {
        self.server.cache.snapshot(&self.kind.collection)
    }

    pub fn dry_run(&self) -> bool {
        self.query.all("dryRun").any(|v| v == "All")
    }

    /// Who is written into managedFields: what the client says, or the first part of its User-Agent.
    pub fn field_manager(&self) -> String {
        let named = self.query.get("fieldManager");
        if !named.is_empty() {
            return named.to_owned();
        }
        let agent = self.header("user-agent").split('/').next().unwrap_or_default();
        let manager: String = agent.chars().filter(|c| !c.is_control()).take(128).collect();
        if manager.is_empty() { "unknown".to_owned() } else { manager }
    }

    /// Checks the options that all writes share; `kind` is what upstream calls them (`UpdateOptions`).
    pub fn check_write_options(&self, kind: &str) -> Result<()> {
        let mut errors = Vec::new();
        let runs: Vec<&str> = self.query.all("dryRun").collect();
        if runs.iter().any(|v| *v != "All") {
            errors.push(FieldError::not_supported("dryRun", &runs.into(), &["All"]));
        }
        let manager = self.query.get("fieldManager");
        if manager.len() > 128 {
            errors.push(FieldError::too_long("fieldManager", 128));
        }
        if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
            let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
            let message = format!("Invalid value: {}: {detail}", schema::go::quote(manager));
            errors.push(FieldError { kind: FieldErrorKind::Invalid, path: "fieldManager".to_owned(), message });
        }
        let validation = self.query.get("fieldValidation");
        if !matches!(validation, "" | "Ignore" | "Warn" | "Strict") {
            let supported = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::not_supported("fieldValidation", &validation.into(), &supported));
        }
        if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", kind, "", &errors)) }
    }
}
