//! One CustomResourceDefinition, compiled once: all the server needs of it.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use cel::COST_OF_ALL;
use schema::catalogue::{Resource, Subresource, api_version, split_api_version};
use schema::field::{FieldError, FieldErrorKind, FieldErrors};
use schema::go;
use schema::json_schema::{Node, strings, text};
use serde_json::{Map, Value};

use super::body::{Body, Slot};
use super::correlate::Pair;
use super::light::Light;
use super::metadata::{self, Malformed};
use super::{defaulting, lists, prune, values};

/// A schema of less than this is compiled on the spot.
const SMALL: usize = 64 << 10;

#[derive(Debug)]
pub struct Definition {
    pub group: Box<str>,
    pub names: Names,
    pub namespaced: bool,
    pub conversion: Conversion,
    /// In the order of the definition.
    pub versions: Vec<Version>,
}

#[derive(Clone, Debug, Default)]
pub struct Names {
    pub plural: Box<str>,
    pub singular: Box<str>,
    pub kind: Box<str>,
    pub list_kind: Box<str>,
    pub short_names: Vec<Box<str>>,
    pub categories: Vec<Box<str>>,
}

#[derive(Debug)]
pub struct Conversion {
    pub strategy: Strategy,
    /// `clientConfig` of the webhook: `url` or `service`, and `caBundle`.
    pub client_config: Value,
    /// The first of these that we speak (`v1`, `v1beta1`) is used.
    pub review_versions: Vec<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    None,
    Webhook,
}

#[derive(Debug)]
pub struct Version {
    pub name: Box<str>,
    pub served: bool,
    pub storage: bool,
    /// The warning that every request to a deprecated version gets.
    pub deprecation: Option<String>,
    /// Raw `additionalPrinterColumns`.
    pub printer_columns: Vec<Value>,
    /// JSON paths (`.spec.colour`).
    pub selectable_fields: Vec<Box<str>>,
    pub subresources: Subresources,
    /// `openAPIV3Schema` as the definition has it, in JSON.
    pub source: Bytes,
    preserve_unknown: bool,
    body: Arc<Slot>,
    pub(crate) api_version: String,
    pub(crate) kind: Box<str>,
}

#[derive(Clone, Debug, Default)]
pub struct Subresources {
    pub status: bool,
    pub scale: Option<Scale>,
}

#[derive(Clone, Debug)]
pub struct Scale {
    pub spec_path: Box<str>,
    pub status_path: Box<str>,
    pub selector_path: Option<Box<str>>,
}

const BLOCKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors \
    to complete validation";

impl Definition {
    /// Compiles a definition that was validated and defaulted. What is missing all the same is told.
    pub fn compile(crd: &Value) -> Result<Self, FieldErrors> {
        Self::of(Light::of(crd))
    }

    /// The same from its text, of which the schemas are compiled only when they are needed.
    pub fn of(light: Light) -> Result<Self, FieldErrors> {
        let Light { value: crd, schemas } = light;
        let empty = Map::new();
        let spec = crd.get("spec").and_then(Value::as_object).unwrap_or(&empty);
        let raw_names = spec.get("names").and_then(Value::as_object).unwrap_or(&empty);
        let names = Names::read(raw_names);
        let group: Box<str> = text(spec, "group").into();
        let mut errors = FieldErrors::new();
        for (path, value) in
            [("spec.group", &group), ("spec.names.plural", &names.plural), ("spec.names.kind", &names.kind)]
        {
            if value.is_empty() {
                errors.push(FieldError::required(path, ""));
            }
        }
        let versions = spec.get("versions").and_then(Value::as_array);
        let versions: Vec<Version> = versions
            .into_iter()
            .flatten()
            .zip(schemas)
            .filter_map(|(version, schema)| Some((version.as_object()?, schema)))
            .map(|(version, schema)| Version::read(&group, &names.kind, spec, version, schema))
            .collect();
        if versions.is_empty() {
            errors.push(FieldError::required("spec.versions", ""));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let conversion = Conversion::read(spec.get("conversion"));
        Ok(Self { group, names, namespaced: text(spec, "scope") == "Namespaced", conversion, versions })
    }

    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|v| &*v.name == name)
    }

    /// Decodes an object of a request by the version that its body names: see [`Version::decode`].
    ///
    /// Of a version that the definition does not have nothing is declared; the server refuses it right after.
    pub fn decode(&self, object: &mut Value) -> Result<Vec<String>, String> {
        let body_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or("").to_owned();
        let (group, name) = split_api_version(&body_version);
        let kind = object.get("kind").and_then(Value::as_str);
        if group != &*self.group || kind != Some(&*self.names.kind) {
            let Some(map) = object.as_object_mut() else { return Ok(Vec::new()) };
            return metadata::coerce(map, "", Malformed::Refuse);
        }
        if let Some(version) = self.version(name) {
            return version.decode(object);
        }
        let Some(map) = object.as_object_mut() else { return Ok(Vec::new()) };
        let mut unknown = metadata::coerce(map, "", Malformed::Refuse)?;
        let mut undeclared = Vec::new();
        prune::prune(object, Some(&Node::default()), true, &mut undeclared);
        undeclared.sort();
        unknown.extend(undeclared);
        Ok(unknown)
    }

    /// The version objects are stored in. Validation sees to it that there is one; else it is the first.
    pub fn storage_version(&self) -> &Version {
        self.versions.iter().find(|v| v.storage).unwrap_or(&self.versions[0])
    }

    /// The served versions as discovery orders them, the preferred one first.
    pub fn served(&self) -> Vec<&Version> {
        let mut served: Vec<&Version> = self.versions.iter().filter(|v| v.served).collect();
        served.sort_by(|a, b| compare_versions(&a.name, &b.name));
        served
    }

    /// The resource of every served version, in the order of [`Definition::served`].
    pub fn resources(&self) -> Vec<Resource> {
        self.served().into_iter().map(|version| self.resource(version)).collect()
    }

    fn resource(&self, version: &Version) -> Resource {
        let verbs = |list: &[&str]| list.iter().map(|v| Box::from(*v)).collect::<Vec<Box<str>>>();
        let mut subresources = Vec::new();
        let mut add = |name: &str, group: &str, version: &str, kind: &str| {
            let verbs = verbs(&["get", "patch", "update"]);
            let (group, version) = (group.into(), version.into());
            subresources.push(Subresource { name: name.into(), group, version, kind: kind.into(), verbs });
        };
        if version.subresources.status {
            add("status", "", "", &self.names.kind);
        }
        if version.subresources.scale.is_some() {
            add("scale", "autoscaling", "v1", "Scale");
        }
        Resource {
            group: self.group.clone(),
            version: version.name.clone(),
            resource: self.names.plural.clone(),
            singular: self.names.singular.clone(),
            kind: self.names.kind.clone(),
            namespaced: self.namespaced,
            short_names: self.names.short_names.clone(),
            categories: self.names.categories.clone(),
            verbs: verbs(&["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
            subresources,
            ty: None,
        }
    }
}

impl Names {
    fn read(names: &Map<String, Value>) -> Self {
        let kind = text(names, "kind");
        let or = |key: &str, otherwise: String| match text(names, key) {
            "" => otherwise.into(),
            value => Box::from(value),
        };
        Self {
            plural: text(names, "plural").into(),
            singular: or("singular", kind.to_lowercase()),
            kind: kind.into(),
            list_kind: or("listKind", format!("{kind}List")),
            short_names: strings(names.get("shortNames")),
            categories: strings(names.get("categories")),
        }
    }
}

impl Conversion {
    fn read(conversion: Option<&Value>) -> Self {
        let field = |pointer: &str| conversion.and_then(|c| c.pointer(pointer));
        let webhook = field("/strategy").and_then(Value::as_str) == Some("Webhook");
        Self {
            strategy: if webhook { Strategy::Webhook } else { Strategy::None },
            client_config: field("/webhook/clientConfig").cloned().unwrap_or_default(),
            review_versions: strings(field("/webhook/conversionReviewVersions")),
        }
    }

    /// The version of `ConversionReview` to send.
    pub fn review_version(&self) -> Option<&str> {
        self.review_versions.iter().map(|v| &**v).find(|v| matches!(*v, "v1" | "v1beta1"))
    }
}

impl Version {
    fn read(group: &str, kind: &str, spec: &Map<String, Value>, version: &Map<String, Value>, source: Bytes) -> Self {
        let name = text(version, "name");
        let api_version = api_version(group, name);
        let flag = |key: &str| version.get(key).and_then(Value::as_bool).unwrap_or(false);
        let deprecation = flag("deprecated").then(|| match text(version, "deprecationWarning") {
            "" => format!("{api_version} {kind} is deprecated"),
            warning => warning.to_owned(),
        });
        let list = |key: &str| version.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let selectable = list("selectableFields");
        Self {
            name: name.into(),
            served: flag("served"),
            storage: flag("storage"),
            deprecation,
            printer_columns: list("additionalPrinterColumns"),
            selectable_fields: selectable.iter().filter_map(|f| f.get("jsonPath")?.as_str()).map(Into::into).collect(),
            subresources: Subresources::read(version.get("subresources")),
            source,
            preserve_unknown: spec.get("preserveUnknownFields").and_then(Value::as_bool) == Some(true),
            body: Arc::default(),
            api_version,
            kind: kind.into(),
        }
    }

    /// Its schema, compiled.
    pub fn body(&self) -> Arc<Body> {
        self.body.get(&self.source, self.preserve_unknown)
    }

    /// Whether using the schema takes no work worth mentioning: it is small, or compiled already.
    pub fn is_at_hand(&self) -> bool {
        self.source.len() < SMALL || self.body.is_made()
    }

    /// What the schema takes as a tree of values, by estimate.
    pub fn weight(&self) -> usize {
        self.source.len() + 700 * memchr::memchr_iter(b'{', &self.source).count()
    }

    /// Uses what another version has compiled, if it has the same schema.
    pub fn share(&mut self, other: &Version) {
        if self.is_like(other) {
            self.body = other.body.clone();
        }
    }

    /// Whether both have the same schema.
    pub fn is_like(&self, other: &Version) -> bool {
        self.source == other.source && self.preserve_unknown == other.preserve_unknown
    }

    /// The schema as a value.
    pub(super) fn raw(&self) -> Value {
        serde_json::from_slice(&self.source).unwrap_or_default()
    }

    /// Decodes an object of a request: removes what the version does not declare and answers the paths of it, metadata
    /// first. Fails where metadata has fields of the wrong type, with Go's words for it.
    ///
    /// An object of another kind is left alone, as upstream does: validation refuses it.
    pub fn decode(&self, object: &mut Value) -> Result<Vec<String>, String> {
        self.coerce(object, Malformed::Refuse)
    }

    /// [`Version::decode`] that drops bad metadata instead of failing: for objects out of the store and conversions.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        self.coerce(object, Malformed::Drop).unwrap_or_default()
    }

    fn coerce(&self, object: &mut Value, malformed: Malformed) -> Result<Vec<String>, String> {
        let ours = self.is_ours(object);
        let body = self.body();
        if matches!(malformed, Malformed::Refuse) {
            go::whole_numbers(object);
        }
        let Some(map) = object.as_object_mut() else { return Ok(Vec::new()) };
        let mut unknown = metadata::coerce(map, "", malformed)?;
        if ours {
            let mut undeclared = Vec::new();
            prune::prune(object, Some(&body.root), true, &mut undeclared);
            undeclared.sort();
            unknown.extend(undeclared);
            defaulting::remove_nulls(object, &body.root);
            let mut embedded = Vec::new();
            metadata::coerce_embedded(object, &body.root, "", malformed, &mut embedded).map_err(|e| e.to_string())?;
            embedded.sort();
            unknown.extend(embedded);
        }
        Ok(unknown)
    }

    fn is_ours(&self, object: &Value) -> bool {
        object.get("kind").and_then(Value::as_str) == Some(&self.kind)
    }

    /// Fills in the schema's defaults, nulls where null is no value included.
    pub fn default(&self, object: &mut Value) {
        if self.is_ours(object) {
            let body = self.body();
            defaulting::remove_nulls(object, &body.root);
            defaulting::fill(object, &body.root);
        }
    }

    /// Everything wrong with a new object but its own metadata, which is checked elsewhere.
    pub fn validate(&self, object: &Value) -> FieldErrors {
        self.validate_after(FieldErrors::new(), object, None)
    }

    /// The same for an update: transition rules apply, and values that did not change are let pass.
    pub fn validate_update(&self, new: &Value, old: &Value) -> FieldErrors {
        self.validate_after(FieldErrors::new(), new, Some(old))
    }

    /// Validation with the errors of the object's metadata put where upstream has them: first, and they count when it
    /// is decided whether CEL rules are still worth a try.
    pub fn validate_after(&self, metadata_errors: FieldErrors, new: &Value, old: Option<&Value>) -> FieldErrors {
        self.validate_within(COST_OF_ALL, metadata_errors, new, old).0
    }

    /// The same with no more than so much for CEL rules, and whether that was too little.
    pub fn validate_within(
        &self,
        budget: u64,
        metadata_errors: FieldErrors,
        new: &Value,
        old: Option<&Value>,
    ) -> (FieldErrors, bool) {
        let pair = Pair { new, old };
        let body = self.body();
        let mut errors = self.type_errors(new);
        if errors.is_empty() {
            errors.extend(metadata_errors);
            errors.extend(values::validate(&body.root, pair, ""));
            if let Some(scale) = &self.subresources.scale {
                scale.validate(new, false, &mut errors);
            }
        }
        finish(&body, budget, pair, errors)
    }

    /// An update of the status subresource: only the status is held against the schema.
    pub fn validate_status_within(
        &self,
        budget: u64,
        metadata_errors: FieldErrors,
        new: &Value,
        old: &Value,
    ) -> (FieldErrors, bool) {
        let body = self.body();
        let mut errors = self.type_errors(new);
        if errors.is_empty() {
            errors.extend(metadata_errors);
            if let (Some(status), Some(node)) = (new.get("status"), body.root.properties.get("status")) {
                errors.extend(values::validate(node, Pair { new: status, old: old.get("status") }, "status"));
            }
            if let Some(scale) = &self.subresources.scale {
                scale.validate(new, true, &mut errors);
            }
        }
        finish(&body, budget, Pair { new, old: Some(old) }, errors)
    }

    fn type_errors(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        for (key, expected) in [("kind", &*self.kind), ("apiVersion", self.api_version.as_str())] {
            let got = object.get(key).and_then(Value::as_str).unwrap_or("");
            if got != expected {
                errors.push(FieldError::invalid(key, &got.into(), &format!("must be {expected}")));
            }
        }
        errors
    }
}

/// Errors of lists, of embedded objects and of rules, behind those that there are.
fn finish(body: &Body, budget: u64, pair: Pair<'_>, mut errors: FieldErrors) -> (FieldErrors, bool) {
    let mut exhausted = false;
    let root = &body.root;
    metadata::validate_embedded(pair.new, root, "", &mut errors);
    let mut old_errors = FieldErrors::new();
    if let Some(old) = pair.old {
        lists::validate(old, root, "", &mut old_errors);
    }
    if old_errors.is_empty() {
        lists::validate(pair.new, root, "", &mut errors);
    }
    if let Some(rules) = &body.rules {
        let blocking = errors.iter().any(|e| {
            use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(e.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        });
        if blocking {
            errors.push(FieldError::invalid("", &Value::Null, BLOCKED));
        } else {
            let (told, too_little) = rules.validate_within(budget, root, pair, "");
            errors.extend(told);
            exhausted = too_little;
        }
    }
    (errors, exhausted)
}

impl Subresources {
    fn read(raw: Option<&Value>) -> Self {
        let scale = raw.and_then(|s| s.get("scale")).and_then(Value::as_object).map(|scale| Scale {
            spec_path: text(scale, "specReplicasPath").into(),
            status_path: text(scale, "statusReplicasPath").into(),
            selector_path: Some(text(scale, "labelSelectorPath")).filter(|p| !p.is_empty()).map(Into::into),
        });
        Self { status: raw.and_then(|s| s.get("status")).is_some_and(|s| !s.is_null()), scale }
    }
}

/// Kubernetes' order of versions: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then all others by name.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (version_rank(a), version_rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability, major and minor number; larger is preferred.
fn version_rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let number = |digits: &str| -> Option<u64> {
        let plain = !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse().ok()).flatten()
    };
    let major = number(&rest[..end])?;
    let suffix = &rest[end..];
    if suffix.is_empty() {
        return Some((3, major, 0));
    }
    let (stability, minor) = match suffix.strip_prefix("beta") {
        Some(minor) => (2, minor),
        None => (1, suffix.strip_prefix("alpha")?),
    };
    Some((stability, major, number(minor)?))
}
