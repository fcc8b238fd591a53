//! The schema of the built-in kinds, read from the generated data file (see `generate/`).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::{Field, Gvk, ListType, PatchStrategy, Presence, Published, Schema, Shape, Struct, TypeId};

static BUILTIN: LazyLock<Schema> = LazyLock::new(|| load(include_str!("../../data/schema.txt")));

/// The types of all built-in kinds and of the machinery around them.
pub fn builtin() -> &'static Schema {
    &BUILTIN
}

/// How the data file shortens names. The generator knows the same table.
const PREFIXES: [(&str, &str); 8] = [
    ("meta.", "io.k8s.apimachinery.pkg.apis.meta."),
    ("runtime.", "io.k8s.apimachinery.pkg.runtime."),
    ("intstr.", "io.k8s.apimachinery.pkg.util.intstr."),
    ("quantity.", "io.k8s.apimachinery.pkg.api.resource."),
    ("version.", "io.k8s.apimachinery.pkg.version."),
    ("apiextensions.", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions."),
    ("apiregistration.", "io.k8s.kube-aggregator.pkg.apis.apiregistration."),
    ("", "io.k8s.api."),
];

fn expand(short: &str) -> String {
    let expanded = PREFIXES.iter().find_map(|(from, to)| short.strip_prefix(from).map(|rest| format!("{to}{rest}")));
    expanded.unwrap_or_default()
}

/// Reads the data file. A line it cannot read is left out: the tests see to it that there is none.
fn load(text: &'static str) -> Schema {
    let mut loader = Loader::default();
    for line in text.lines() {
        match line.strip_prefix(' ') {
            None if line.starts_with("enum ") => loader.enumeration(line),
            None => loader.declare(line),
            Some(_) => {}
        }
    }
    let mut current = None;
    let mut fields = Vec::new();
    for line in text.lines() {
        if let Some(field) = line.strip_prefix(' ') {
            fields.extend(loader.field(field));
        } else {
            loader.finish(current, std::mem::take(&mut fields));
            current = line.split(' ').next().and_then(|name| loader.ids.get(name)).copied();
        }
    }
    loader.finish(current, fields);
    loader.schema
}

#[derive(Default)]
struct Loader {
    schema: Schema,
    /// Type expressions that have a place already: short names, primitives, `[]core.v1.Container`.
    ids: HashMap<&'static str, TypeId>,
    enums: HashMap<&'static str, Arc<[Box<str>]>>,
}

impl Loader {
    fn enumeration(&mut self, line: &'static str) {
        let mut words = line.splitn(3, ' ').skip(1);
        if let (Some(name), Some(values)) = (words.next(), words.next()) {
            let values: Vec<Box<str>> = serde_json::from_str(values).unwrap_or_default();
            self.enums.insert(name, values.into());
        }
    }

    fn declare(&mut self, line: &'static str) {
        let mut words = line.split(' ');
        let Some(name) = words.next() else { return };
        let mut shape = Shape::Struct(Struct::default());
        let mut kinds = Vec::new();
        let mut union = None;
        while let Some(word) = words.next() {
            match word {
                "=" => shape = words.next().and_then(leaf).unwrap_or(Shape::Any),
                "atomic" => {
                    if let Shape::Struct(s) = &mut shape {
                        s.atomic = true;
                    }
                }
                _ => match word.split_once('=') {
                    Some(("gvk", text)) => kinds.extend(gvk(text)),
                    Some(("union", text)) => union = Some(text.into()),
                    _ => {}
                },
            }
        }
        let id = self.schema.add(&expand(name), shape);
        let ty = &mut self.schema.types[id.0 as usize];
        (ty.kinds, ty.union) = (kinds.into(), union);
        self.ids.insert(name, id);
    }

    fn finish(&mut self, id: Option<TypeId>, mut fields: Vec<Field>) {
        let Some(id) = id else { return };
        if let Shape::Struct(s) = &mut self.schema.types[id.0 as usize].shape {
            fields.sort_by(|a, b| a.name.cmp(&b.name));
            s.fields = fields.into();
        }
    }

    fn field(&mut self, line: &'static str) -> Option<Field> {
        // Defaults come last and may hold spaces.
        let (line, default) = match line.split_once(" default=") {
            Some((line, default)) => (line, serde_json::from_str(default).ok()),
            None => (line, None),
        };
        let mut words = line.split(' ');
        let name = words.next()?;
        let expression = words.next()?;
        let numbers = words.next()?.split('.').filter_map(|n| n.parse().ok()).collect();
        let ty = self.resolve(expression)?;
        let mut field = Field { name: name.into(), ty, default, numbers, ..Field::default() };
        let mut published = Published { atomic_list: expression.starts_with("[atomic]"), ..Published::default() };
        for word in words {
            self.mark(&mut field, &mut published, word);
        }
        if published.atomic_list
            || published.required_place > 0
            || published.go_type.is_some()
            || published.enumeration.is_some()
        {
            field.published = Some(Box::new(published));
        }
        Some(field)
    }

    fn mark(&self, field: &mut Field, published: &mut Published, word: &str) {
        match word {
            "r" => field.required = true,
            "p" => field.presence = Presence::Pointer,
            "a" => field.presence = Presence::Always,
            "n" => field.presence = Presence::Nullable,
            "merge" => patch(field).merge = true,
            "replace" => patch(field).replace = true,
            "retainKeys" => patch(field).retain_keys = true,
            _ if word.starts_with('r') && word[1..].bytes().all(|b| b.is_ascii_digit()) => {
                field.required = true;
                published.required_place = word[1..].parse().unwrap_or(0);
            }
            _ => match word.split_once('=') {
                Some(("key", key)) => patch(field).merge_key = Some(key.into()),
                Some(("go", name)) => published.go_type = Some(name.into()),
                Some(("enum", name)) => published.enumeration = self.enums.get(name).cloned(),
                _ => {}
            },
        }
    }

    /// The type that an expression means, made if it is the first time.
    fn resolve(&mut self, expression: &'static str) -> Option<TypeId> {
        if let Some(id) = self.ids.get(expression) {
            return Some(*id);
        }
        let shape = if let Some(rest) = expression.strip_prefix('[') {
            let (list, items) = rest.split_once(']')?;
            Shape::Array { items: self.resolve(items)?, list: list_type(list) }
        } else if let Some(rest) = expression.strip_prefix('{') {
            let (mark, values) = rest.split_once('}')?;
            Shape::Map { values: self.resolve(values)?, atomic: mark == "atomic" }
        } else {
            leaf(expression)?
        };
        let id = self.schema.add("", shape);
        self.ids.insert(expression, id);
        Some(id)
    }
}

fn patch(field: &mut Field) -> &mut PatchStrategy {
    field.patch.get_or_insert_with(PatchStrategy::default)
}

fn list_type(mark: &str) -> ListType {
    match mark {
        "" | "atomic" => ListType::Atomic,
        "set" => ListType::Set,
        keys => ListType::Map(keys.split(',').map(Box::from).collect()),
    }
}

fn leaf(name: &str) -> Option<Shape> {
    Some(match name {
        "any" => Shape::Any,
        "b" => Shape::Boolean,
        "i32" => Shape::Integer { bits: 32 },
        "i64" => Shape::Integer { bits: 64 },
        "f64" => Shape::Number,
        "s" => Shape::String,
        "bytes" => Shape::Bytes,
        "ios" => Shape::IntOrString,
        "q" => Shape::Quantity,
        "time" => Shape::Time,
        "utime" => Shape::MicroTime,
        "fields" => Shape::FieldsV1,
        _ => return None,
    })
}

fn gvk(text: &str) -> Option<Gvk> {
    if text == "*" {
        return Some(Gvk { group: "*".into(), version: "*".into(), kind: "*".into() });
    }
    let mut parts = text.split('/');
    Some(Gvk { group: parts.next()?.into(), version: parts.next()?.into(), kind: parts.next()?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(ty: &str, name: &str) -> &'static Field {
        let id = builtin().find(ty).unwrap();
        builtin().field(id, name).unwrap()
    }

    #[test]
    fn every_line_is_read() {
        let text = include_str!("../../data/schema.txt");
        let lines = text.lines().filter(|l| l.starts_with(' ')).count();
        let fields: usize =
            builtin().types.iter().map(|t| if let Shape::Struct(s) = &t.shape { s.fields.len() } else { 0 }).sum();
        assert_eq!(fields, lines);
        let heads = text.lines().filter(|l| !l.starts_with(' ') && !l.starts_with("enum ")).count();
        assert_eq!(builtin().by_name.len(), heads);
        assert!(builtin().types.iter().all(|t| t.name.is_empty() || t.name.starts_with("io.k8s.")));
    }

    #[test]
    fn marks_survive() {
        let ports = field("io.k8s.api.core.v1.Container", "ports");
        let Shape::Array { items, list } = builtin().shape(ports.ty) else { panic!("ports is a list") };
        assert_eq!(*list, ListType::Map(["containerPort".into(), "protocol".into()].into()));
        assert_eq!(&*builtin().get(*items).name, "io.k8s.api.core.v1.ContainerPort");
        assert_eq!(ports.patch.as_ref().unwrap().merge_key.as_deref(), Some("containerPort"));
        let protocol = field("io.k8s.api.core.v1.ContainerPort", "protocol");
        assert_eq!(protocol.default, Some("TCP".into()));
        assert_eq!(protocol.published.as_ref().unwrap().enumeration.as_ref().unwrap().len(), 3);
        assert_eq!(&*field("io.k8s.api.core.v1.Volume", "hostPath").numbers, [2, 1]);
        assert_eq!(field("io.k8s.api.apps.v1.DeploymentSpec", "replicas").presence, Presence::Pointer);
        assert!(field("io.k8s.api.apps.v1.DeploymentSpec", "strategy").patch.as_ref().unwrap().retain_keys);
    }

    #[test]
    fn kinds_are_found() {
        let pod = builtin().of_kind("", "v1", "Pod").unwrap();
        assert_eq!(&*builtin().get(pod).name, "io.k8s.api.core.v1.Pod");
        assert_eq!(builtin().list_of(pod), builtin().of_kind("", "v1", "PodList"));
        assert!(builtin().of_kind("autoscaling", "v1", "Scale").is_some());
    }
}
