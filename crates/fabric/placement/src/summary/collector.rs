//! What a StatusCollector asks for, read and compiled once.

use cel::{COST_OF_ONE, Expression, Failure, Value as Cel, to_json};
use kinds::ObjectKey;
use schema::selector::LabelSelector;
use serde_json::Value;

use super::number::Kind;

/// So many groups, rows and broken objects are listed unless the collector says otherwise, and at most.
const LISTED: usize = 20;
const MOST_LISTED: usize = 10_000;
/// So many expressions of a sort.
const MOST_FIELDS: usize = 32;
/// A value that is longer than this is none: lists of them would not fit an object.
const LONGEST: usize = 1024;
/// Seconds after which what an absent edge has said is old.
const STALE: i64 = 300;

#[derive(Clone, Debug)]
pub struct Collector {
    pub generation: i64,
    /// One placement of the workspace; else all.
    pub placement: Option<Box<str>>,
    pub(super) filter: Option<Formula>,
    pub(super) group_by: Vec<(Box<str>, Formula)>,
    pub(super) combined: Vec<Combined>,
    pub(super) select: Vec<(Box<str>, Formula)>,
    pub(super) broken: Option<Formula>,
    pub(super) limit: usize,
    pub(super) stale_after: i64,
    objects: Objects,
    reads: Reads,
}

#[derive(Clone, Debug)]
pub(super) struct Combined {
    pub name: Box<str>,
    pub kind: Kind,
    pub subject: Option<Formula>,
}

/// Which objects.
#[derive(Clone, Debug)]
struct Objects {
    group: Option<Box<str>>,
    resource: Option<Box<str>>,
    namespaces: Vec<Box<str>>,
    names: Vec<Box<str>>,
    labels: LabelSelector,
}

/// Which variables some expression reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reads {
    pub object: bool,
    pub location: bool,
    pub edge: bool,
    pub sync: bool,
}

/// An expression.
#[derive(Clone, Debug)]
pub(super) struct Formula(Expression);

/// Why an expression came to nothing.
pub(super) enum Trouble {
    /// It reads what is not there.
    Absent(String),
    Wrong(String),
}

impl Formula {
    pub fn value(&self, variables: &[(&str, Cel)], budget: &mut u64) -> Result<Value, Trouble> {
        let made = self.0.evaluate(variables, budget).map_err(|failure| match failure {
            Failure::Error(why) if why.starts_with("no such key") => Trouble::Absent(why),
            other => Trouble::Wrong(other.to_string()),
        })?;
        to_json(&made).ok_or_else(|| Trouble::Wrong("it is nothing that can be written down".to_owned()))
    }

    /// The same, where what is not there is null.
    pub fn value_or_null(&self, variables: &[(&str, Cel)], budget: &mut u64) -> Result<Value, String> {
        let value = match self.value(variables, budget) {
            Ok(value) => value,
            Err(Trouble::Absent(_)) => Value::Null,
            Err(Trouble::Wrong(why)) => return Err(why),
        };
        // Numbers, booleans and most texts are known to be short without being written.
        let short = match &value {
            Value::String(text) => text.len() <= LONGEST,
            Value::Array(_) | Value::Object(_) => value.to_string().len() <= LONGEST,
            _ => true,
        };
        if short { Ok(value) } else { Err(format!("the value is longer than {LONGEST} bytes")) }
    }
}

impl Collector {
    /// All that is wrong with it, if anything is.
    pub fn read(collector: &Value) -> Result<Self, Vec<String>> {
        let spec = collector.get("spec").unwrap_or(&Value::Null);
        let mut reader = Reader::default();
        let text = |path: &str| spec.pointer(path).and_then(Value::as_str).filter(|t| !t.is_empty()).map(Box::from);
        let anything = |name: Option<Box<str>>| name.filter(|name| &**name != "*");
        let labels = match spec.get("labelSelector") {
            None | Some(Value::Null) => LabelSelector::everything(),
            Some(selector) => LabelSelector::from_value(selector).unwrap_or_else(|why| {
                reader.wrong("spec.labelSelector", &why.message);
                LabelSelector::nothing()
            }),
        };
        let resource = anything(text("/resource/resource"));
        // A resource without a group is one of the core group; a group without a resource is all of it.
        let group = match spec.pointer("/resource/apiGroup").and_then(Value::as_str) {
            Some("*") => None,
            Some("") | None => resource.is_some().then(|| "core".into()),
            Some(group) => Some(group.into()),
        };
        let objects =
            Objects { group, resource, namespaces: texts(spec, "namespaces"), names: texts(spec, "names"), labels };
        let filter = reader.formula(spec.get("filter"), "spec.filter");
        let group_by = reader.named(spec, "groupBy");
        let select = reader.named(spec, "select");
        let broken = reader.formula(spec.get("broken"), "spec.broken");
        let combined = reader.combined(spec);
        if !(select.is_empty() || group_by.is_empty() && combined.is_empty()) {
            reader.wrong(
                "spec.select",
                "rows are either selected or combined: groupBy and combinedFields do not go with it",
            );
        }
        let limit = match spec.get("limit").filter(|limit| !limit.is_null()) {
            None => LISTED,
            Some(limit) => limit.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(MOST_LISTED).min(MOST_LISTED),
        };
        let stale_after = match spec.get("staleAfter").and_then(Value::as_str) {
            None => STALE,
            Some(text) => seconds(text).unwrap_or_else(|| {
                reader.wrong("spec.staleAfter", &format!("{text:?} is no duration, such as 90s, 5m or 24h"));
                STALE
            }),
        };
        if !reader.wrong.is_empty() {
            return Err(reader.wrong);
        }
        Ok(Self {
            generation: collector.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default(),
            placement: text("/placement"),
            filter,
            group_by,
            combined,
            select,
            broken,
            limit,
            stale_after,
            objects,
            reads: reader.reads,
        })
    }

    /// Whether it asks for this object, as far as its name tells.
    pub fn names(&self, key: &ObjectKey<'_>) -> bool {
        let Objects { group, resource, namespaces, names, .. } = &self.objects;
        let Some((of_group, of_resource)) = key.collection.split_once('/') else { return false };
        let listed = |list: &[Box<str>], what: &str| {
            list.is_empty() || list.iter().any(|one| matches!(&**one, "*") || **one == *what)
        };
        group.as_ref().is_none_or(|group| **group == *of_group)
            && resource.as_ref().is_none_or(|resource| **resource == *of_resource)
            && (key.namespace.is_empty() || listed(namespaces, key.namespace))
            && listed(names, key.name)
    }

    pub fn has_labels(&self) -> bool {
        !self.objects.labels.is_empty()
    }

    pub fn selects_labels(&self, object: &Value) -> bool {
        self.objects.labels.matches_object(object)
    }

    /// Whether what is known of the link is part of what it says, besides how old that is.
    pub fn reads_sync(&self) -> bool {
        self.reads.sync
    }

    /// Whether what a Location or SyncTarget says of itself is part of what it says.
    pub fn reads_place(&self) -> bool {
        self.reads.location || self.reads.edge
    }

    pub fn reads_object(&self) -> bool {
        self.reads.object
    }

    pub(super) fn reads(&self) -> Reads {
        self.reads
    }

    /// What one row may cost: an expression has the cost of one, and all of them ten times that.
    pub(super) fn budget() -> u64 {
        COST_OF_ONE * 10
    }
}

#[derive(Default)]
struct Reader {
    wrong: Vec<String>,
    reads: Reads,
}

impl Reader {
    fn wrong(&mut self, place: &str, why: &str) {
        self.wrong.push(format!("{place}: {why}"));
    }

    fn formula(&mut self, source: Option<&Value>, place: &str) -> Option<Formula> {
        let source = source.and_then(Value::as_str).filter(|text| !text.trim().is_empty())?;
        match Expression::parse(source) {
            Ok(expression) => {
                self.reads.object |= expression.reads("obj");
                self.reads.location |= expression.reads("location");
                self.reads.edge |= expression.reads("edge");
                self.reads.sync |= expression.reads("sync");
                Some(Formula(expression))
            }
            Err(why) => {
                self.wrong(place, &why);
                None
            }
        }
    }

    /// `name` of each entry, and the entry.
    fn entries<'v>(&mut self, spec: &'v Value, field: &str) -> Vec<(Box<str>, &'v Value, String)> {
        let list = spec.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if list.len() > MOST_FIELDS {
            self.wrong(&format!("spec.{field}"), &format!("at most {MOST_FIELDS} are possible"));
        }
        let mut entries: Vec<(Box<str>, &Value, String)> = Vec::new();
        for (n, entry) in list.iter().take(MOST_FIELDS).enumerate() {
            let (place, name) =
                (format!("spec.{field}[{n}]"), entry.get("name").and_then(Value::as_str).unwrap_or_default());
            if name.is_empty() || entries.iter().any(|(other, ..)| **other == *name) {
                self.wrong(&place, "a name of its own is required");
            }
            entries.push((name.into(), entry, place));
        }
        entries
    }

    fn named(&mut self, spec: &Value, field: &str) -> Vec<(Box<str>, Formula)> {
        let mut list = Vec::new();
        for (name, entry, place) in self.entries(spec, field) {
            match self.formula(entry.get("def"), &format!("{place}.def")) {
                Some(formula) => list.push((name, formula)),
                None => self.wrong(&format!("{place}.def"), "an expression is required"),
            }
        }
        list
    }

    fn combined(&mut self, spec: &Value) -> Vec<Combined> {
        let mut list = Vec::new();
        for (name, entry, place) in self.entries(spec, "combinedFields") {
            let text = entry.get("type").and_then(Value::as_str).unwrap_or_default();
            let Some(kind) = Kind::read(text) else {
                self.wrong(&format!("{place}.type"), &format!("{text:?} is none of COUNT, SUM, AVG, MIN, MAX"));
                continue;
            };
            let subject = self.formula(entry.get("subject"), &format!("{place}.subject"));
            if subject.is_none() && kind != Kind::Count {
                self.wrong(&format!("{place}.subject"), &format!("{text} needs an expression that says of what"));
            }
            list.push(Combined { name, kind, subject });
        }
        list
    }
}

fn texts(spec: &Value, field: &str) -> Vec<Box<str>> {
    let list = spec.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    list.iter().filter_map(Value::as_str).map(Box::from).collect()
}

/// `1h30m`, `90s`, `1.5s`: in seconds, rounded up.
fn seconds(text: &str) -> Option<i64> {
    let (mut rest, mut millis) = (text, 0f64);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let end_of_unit = rest[end..].find(|c: char| !c.is_ascii_alphabetic()).map_or(rest.len(), |at| end + at);
        millis += number
            * match &rest[end..end_of_unit] {
                "ms" => 1.0,
                "s" => 1_000.0,
                "m" => 60_000.0,
                "h" => 3_600_000.0,
                _ => return None,
            };
        rest = &rest[end_of_unit..];
    }
    // A float becomes the nearest integer there is: what is too long is as good as never.
    (!text.is_empty()).then_some((millis / 1_000.0).ceil() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(spec: Value) -> Result<Collector, Vec<String>> {
        Collector::read(&json!({"metadata": {"name": "c", "generation": 3}, "spec": spec}))
    }

    #[test]
    fn what_is_wrong_is_said_all_at_once() {
        let wrong = read(json!({
            "filter": "obj.", "groupBy": [{"name": "a", "def": "1"}, {"name": "a", "def": ""}], "staleAfter": "soon",
            "combinedFields": [{"name": "x", "type": "MEDIAN"}, {"name": "y", "type": "SUM"}], "select": [{"name": "s", "def": "1"}],
            "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}))
        .unwrap_err();
        let places: Vec<&str> = wrong.iter().map(|w| w.split(": ").next().unwrap()).collect();
        let want = [
            "spec.labelSelector",
            "spec.filter",
            "spec.groupBy[1]",
            "spec.groupBy[1].def",
            "spec.combinedFields[0].type",
            "spec.combinedFields[1].subject",
            "spec.select",
            "spec.staleAfter",
        ];
        assert_eq!(places, want, "{wrong:#?}");
        assert!(read(json!(null)).is_ok() && read(json!(7)).is_ok() && Collector::read(&Value::Null).is_ok());
    }

    #[test]
    fn objects_are_chosen_by_name() {
        let deployment = ObjectKey::parse("apps/deployments/shop/web").unwrap();
        let config = ObjectKey::parse("core/configmaps/shop/menu").unwrap();
        let cluster = ObjectKey::parse("core/namespaces//shop").unwrap();
        for (spec, want) in [
            (json!({}), [true, true, true]),
            (json!({"resource": {"apiGroup": "apps", "resource": "deployments"}}), [true, false, false]),
            (json!({"resource": {"resource": "configmaps"}}), [false, true, false]),
            (json!({"resource": {"apiGroup": "apps"}}), [true, false, false]),
            (json!({"resource": {"apiGroup": "*", "resource": "*"}}), [true, true, true]),
            (json!({"namespaces": ["bank"]}), [false, false, true]),
            (json!({"namespaces": ["shop", "bank"], "names": ["web"]}), [true, false, false]),
        ] {
            let collector = read(spec.clone()).unwrap();
            assert_eq!([&deployment, &config, &cluster].map(|key| collector.names(key)), want, "{spec}");
        }
        let collector = read(json!({"labelSelector": {"matchLabels": {"a": "b"}}})).unwrap();
        assert!(collector.has_labels() && collector.selects_labels(&json!({"metadata": {"labels": {"a": "b"}}})));
        assert!(!collector.selects_labels(&json!({})));
    }

    #[test]
    fn durations() {
        for (text, want) in [
            ("90s", Some(90)),
            ("1h30m", Some(5400)),
            ("0s", Some(0)),
            ("1.5s", Some(2)),
            ("500ms", Some(1)),
            ("99999999999999999999h", Some(i64::MAX)),
            ("", None),
            ("5", None),
            ("m", None),
            ("5x", None),
            ("1.2.3s", None),
        ] {
            assert_eq!(seconds(text), want, "{text}");
        }
    }
}
