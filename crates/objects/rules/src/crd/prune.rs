//! Removing what a version does not declare.

use schema::json_schema::{Additional, Node, is_meta};
use serde_json::Value;

/// Removes undeclared fields below `node` and answers their paths, unsorted.
///
/// `resource` says that the value is a whole object, whose `apiVersion`, `kind` and `metadata` are not for the schema.
pub(crate) fn prune(value: &mut Value, node: Option<&Node>, resource: bool, unknown: &mut Vec<String>) {
    let mut pruner = Pruner { path: String::new(), unknown };
    pruner.prune(value, node, resource, true, 0);
}

/// Arrays of arrays without any schema are followed only so far.
const MAX_UNDECLARED_DEPTH: usize = 512;

struct Pruner<'a> {
    path: String,
    unknown: &'a mut Vec<String>,
}

impl Pruner<'_> {
    fn prune(&mut self, value: &mut Value, node: Option<&Node>, resource: bool, top: bool, depth: usize) {
        if depth > MAX_UNDECLARED_DEPTH {
            return;
        }
        let keep = node.is_some_and(|n| n.preserve_unknown);
        match value {
            Value::Object(map) => {
                let resource = resource || node.is_some_and(|n| n.embedded);
                let mut gone: Vec<String> = Vec::new();
                for (key, child) in map.iter_mut() {
                    if node.is_some() && resource && is_meta(key) {
                        continue;
                    }
                    let declared = node.and_then(|n| n.properties.get(key.as_str()));
                    match (declared, node.and_then(|n| n.additional.as_ref())) {
                        (Some(node), _) => self.step_key(key, |p| p.prune(child, Some(node), false, false, depth + 1)),
                        (None, Some(Additional::Schema(node))) => {
                            self.step_key(key, |p| p.prune(child, Some(node), false, false, depth + 1));
                        }
                        (None, Some(Additional::Any)) => {
                            self.step_key(key, |p| p.prune(child, None, false, false, depth + 1));
                        }
                        (None, None) if keep => {}
                        (None, None) => gone.push(key.clone()),
                    }
                }
                for key in gone {
                    if !(top && is_meta(&key)) {
                        let path = self.path.clone();
                        self.unknown.push(join(&path, &key));
                    }
                    map.remove(&key);
                }
            }
            Value::Array(list) => {
                let items = node.and_then(|n| n.items.as_deref());
                if keep && items.is_none() {
                    return;
                }
                for (index, child) in list.iter_mut().enumerate() {
                    let length = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    self.prune(child, items, false, false, depth + 1);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn step_key(&mut self, key: &str, go: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        go(self);
        self.path.truncate(length);
    }
}

pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
