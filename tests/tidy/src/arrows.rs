//! Layers are folders. A crate uses crates of lower folders, and inside its folder only those that stand before it.

use crate::{Offence, Tree};

/// A folder of crates: its height, and its crates in the order of use.
struct Layer {
    name: &'static str,
    /// Layers of the same height do not use each other.
    height: u8,
    crates: &'static [&'static str],
}

const LAYERS: &[Layer] = &[
    Layer { name: "base", height: 0, crates: &["clock", "backoff", "tasks", "metrics", "tls", "store", "resident"] },
    Layer { name: "objects", height: 1, crates: &["schema", "codec", "patch", "cel", "rules"] },
    Layer {
        name: "apiserver",
        height: 2,
        crates: &["request", "cache", "identity", "flow", "audit", "tenancy", "server", "front"],
    },
    Layer { name: "fabric", height: 3, crates: &["kinds", "link", "placement", "center", "edge"] },
    Layer {
        name: "node",
        height: 3,
        crates: &["controllers", "workloads", "pods", "node-api", "processes", "network"],
    },
    Layer {
        name: "platform",
        height: 4,
        crates: &["serving", "ingress", "offload", "devices", "ingest", "sinks", "telemetry"],
    },
];

/// The binary stands above all layers.
const PROGRAM: &str = "crates/selvedge";

/// Where a crate stands, by its folder.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Position {
    /// The height of the layer, its index in [`LAYERS`], and the place inside it.
    In(u8, usize, usize),
    Program,
    /// A crate that the lists above do not name.
    Unknown,
}

fn position(folder: &str) -> Position {
    if folder == PROGRAM {
        return Position::Program;
    }
    let parts: Vec<&str> = folder.split('/').collect();
    let ["crates", layer, name] = parts[..] else { return Position::Unknown };
    let Some(index) = LAYERS.iter().position(|known| known.name == layer) else { return Position::Unknown };
    let place = LAYERS[index].crates.iter().position(|known| *known == name);
    place.map_or(Position::Unknown, |place| Position::In(LAYERS[index].height, index, place))
}

fn may_use(from: Position, to: Position) -> bool {
    match (from, to) {
        (Position::Program, _) => true,
        (Position::In(above, layer, place), Position::In(below, other, before)) => {
            below < above || (layer == other && before < place)
        }
        _ => false,
    }
}

pub fn check(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    for folder in tree.crate_folders().filter(|folder| position(folder) == Position::Unknown) {
        let what = "is in no layer: move it, or add it to LAYERS in tests/tidy/src/arrows.rs in its order of use";
        found.push(Offence::new(folder, 1, what));
    }
    for arrow in tree.arrows.iter().filter(|arrow| arrow.from.starts_with("crates/")) {
        let (from, to) = (position(&arrow.from), position(&arrow.to));
        if from != Position::Unknown && to != Position::Unknown && !may_use(from, to) {
            let key = format!("{} -> {}", arrow.from, arrow.to);
            found.push(Offence::new(key, 1, "points upwards or to a sibling: lower crates do not know upper ones"));
        }
        if from != Position::Unknown && !arrow.to.starts_with("crates/") {
            let key = format!("{} -> {}", arrow.from, arrow.to);
            found.push(Offence::new(key, 1, "a crate does not use what is outside crates/"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Arrow;

    fn keys(crates: &[&str], arrows: &[(&str, &str)]) -> Vec<String> {
        let files = crates.iter().map(|folder| (format!("crates/{folder}/Cargo.toml"), String::new()));
        let folder = |name: &str| format!("crates/{name}");
        let arrows = arrows.iter().map(|(from, to)| Arrow { from: folder(from), to: folder(to) }).collect();
        check(&Tree::new(files, arrows)).into_iter().map(|offence| offence.key).collect()
    }

    #[test]
    fn downwards_and_in_order_is_allowed() {
        let arrows = [
            ("apiserver/server", "base/store"),
            ("apiserver/front", "apiserver/server"),
            ("fabric/edge", "apiserver/server"),
            ("selvedge", "node/pods"),
            ("selvedge", "fabric/edge"),
        ];
        assert_eq!(keys(&["base/store", "selvedge"], &arrows), [""; 0]);
    }

    #[test]
    fn upwards_sideways_and_out_of_order_is_not() {
        for (from, to) in [
            ("base/store", "objects/schema"),
            ("apiserver/server", "fabric/kinds"),
            ("fabric/edge", "node/pods"),
            ("node/pods", "fabric/link"),
            ("objects/schema", "objects/codec"),
            ("fabric/center", "selvedge"),
        ] {
            assert_eq!(keys(&[], &[(from, to)]), [format!("crates/{from} -> crates/{to}")], "{from} uses {to}");
        }
    }

    #[test]
    fn a_crate_has_a_layer() {
        assert_eq!(keys(&["api", "base/other", "base/tls"], &[]), ["crates/api", "crates/base/other"]);
    }
}
