//! Modules of a crate do not use each other in circles of more than two.
//!
//! The modules of one folder are nodes. A path that begins with `crate`, `super` or `self` and leads from one of them
//! into another is an arrow. Names that a module re-exports count as the module's own, so a hub such as `lib.rs` is not
//! an arrow.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Offence, Tree,
    source::{Crate, tokens},
};

/// The largest circle that is allowed.
const MAX_MODULES: usize = 2;

/// A circle of modules of one folder.
#[derive(Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The crate, and the module whose children these are.
    pub place: String,
    pub modules: Vec<String>,
}

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The circles of more than one module, largest first.
pub fn find(tree: &Tree) -> Vec<Cycle> {
    let mut found = Vec::new();
    for folder in tree.crate_folders() {
        for (parent, graph) in graphs(tree, &Crate::of(tree, folder)) {
            let place = [&[folder.to_owned()], &parent[..]].concat().join("::");
            let circles = components(&graph).into_iter().filter(|modules| modules.len() > 1);
            found.extend(circles.map(|modules| Cycle { place: place.clone(), modules }));
        }
    }
    found.sort_by_key(|cycle| (std::cmp::Reverse(cycle.modules.len()), cycle.place.clone()));
    found
}

pub fn check(tree: &Tree) -> Vec<Offence> {
    let large = find(tree).into_iter().filter(|cycle| cycle.modules.len() > MAX_MODULES);
    let mut places: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for cycle in large {
        let (count, texts) = places.entry(cycle.place).or_default();
        *count += cycle.modules.len();
        texts.push(format!("{} modules use each other: {}", cycle.modules.len(), cycle.modules.join(", ")));
    }
    places.into_iter().map(|(place, (count, texts))| Offence::new(place, count, texts.join("; "))).collect()
}

/// For each module with children, who of them uses whom.
fn graphs(tree: &Tree, all: &Crate) -> BTreeMap<Vec<String>, Graph> {
    let mut graphs: BTreeMap<Vec<String>, Graph> = BTreeMap::new();
    for (module, path) in &all.modules {
        let Some(source) = tree.sources.get(path).filter(|_| !all.is_test(module)) else { continue };
        for target in used(&source.code, module) {
            let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) else { continue };
            let is_module = |name: &String| {
                let child = [&module[..shared], std::slice::from_ref(name)].concat();
                all.modules.contains_key(&child) && !all.is_test(&child)
            };
            if is_module(to) {
                let graph = graphs.entry(module[..shared].to_vec()).or_default();
                graph.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    graphs
}

/// The paths that a file uses, from the root of the crate.
fn used(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let tokens: Vec<&str> = tokens(code).map(|(token, _)| token).collect();
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let is_start = at == 0 || tokens[at - 1] != "::";
        let next = tokens.get(at + 1) == Some(&"::");
        if is_start && next && matches!(tokens[at], "crate" | "super" | "self") {
            let mut end = at;
            read_path(&tokens, &mut end, &mut Vec::new(), &mut |path| found.extend(resolve(path, module)));
        }
    }
    found
}

/// Reads `a::b` or `a::{b, c::d}` and hands on each path in it.
fn read_path<'a>(tokens: &[&'a str], at: &mut usize, before: &mut Vec<&'a str>, out: &mut dyn FnMut(&[&'a str])) {
    let depth = before.len();
    loop {
        match tokens.get(*at) {
            Some(&"{") => {
                *at += 1;
                while tokens.get(*at).is_some_and(|token| *token != "}") {
                    let start = *at;
                    read_path(tokens, at, before, out);
                    // Whatever is not a path, such as a comma or `as name`.
                    if *at == start {
                        *at += 1;
                    }
                }
                *at += 1;
                break;
            }
            Some(token) if token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => {
                before.push(token);
                *at += 1;
                if tokens.get(*at) != Some(&"::") {
                    out(before);
                    break;
                }
                *at += 1;
            }
            _ => {
                if before.len() > depth {
                    out(before);
                }
                break;
            }
        }
    }
    before.truncate(depth);
}

/// A path from the root of the crate, without `crate`, `super` and `self`.
fn resolve(path: &[&str], module: &[String]) -> Option<Vec<String>> {
    let mut base = if path.first() == Some(&"crate") { Vec::new() } else { module.to_vec() };
    let mut rest = path;
    while let Some((first, others)) = rest.split_first() {
        match *first {
            "super" => drop(base.pop()?),
            "crate" | "self" => {}
            _ => break,
        }
        rest = others;
    }
    base.extend(rest.iter().map(|name| (*name).to_owned()));
    Some(base)
}

/// The strongly connected components of a graph, by the nodes that reach each other. Graphs are small.
fn components(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = graph.keys().map(|node| (node, reach(graph, node))).collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (node, others) in &reached {
        if others.contains(node) {
            let same = others.iter().filter(|other| reached.get(*other).is_some_and(|back| back.contains(node)));
            found.insert(same.map(|other| (*other).clone()).collect());
        }
    }
    found.into_iter().collect()
}

fn reach<'a>(graph: &'a Graph, from: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<&String> = graph.get(from).into_iter().flatten().collect();
    while let Some(node) = waiting.pop() {
        if reached.insert(node) {
            waiting.extend(graph.get(node).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let files = files.iter().map(|(name, text)| (format!("crates/base/a/{name}"), (*text).to_owned()));
        Tree::new(files.chain([("crates/base/a/Cargo.toml".to_owned(), String::new())]), Vec::new())
    }

    #[test]
    fn two_may_use_each_other_and_three_may_not() {
        let two = [("src/lib.rs", "mod b; mod c;"), ("src/b.rs", "use crate::c::C;"), ("src/c.rs", "use super::b::B;")];
        assert_eq!(check(&tree(&two)), []);
        assert_eq!(find(&tree(&two)), [Cycle { place: "crates/base/a".into(), modules: vec!["b".into(), "c".into()] }]);
        let three = [
            ("src/b.rs", "use crate::{x::Y, c::{C, D}};"),
            ("src/c/mod.rs", ""),
            ("src/c/e.rs", "fn f() { super::super::d::g(); }"),
            ("src/d.rs", "fn h() -> crate::b::B {}"),
        ];
        let found = check(&tree(&three));
        assert_eq!(found, [Offence::new("crates/base/a", 3, "3 modules use each other: b, c, d")]);
    }

    #[test]
    fn comments_tests_and_parents_make_no_circle() {
        let files = [
            ("src/lib.rs", "mod b; mod c; mod d; pub use b::B;"),
            ("src/b.rs", "use crate::c::C; // crate::d\n#[cfg(test)]\nmod tests { use crate::d::D; }"),
            ("src/c.rs", "use crate::{B, d::D};"),
            ("src/d.rs", "use crate::B; #[cfg(test)]\nmod laws;"),
            ("src/d/laws.rs", "use crate::b::B;"),
        ];
        assert_eq!(find(&tree(&files)), []);
    }

    #[test]
    fn circles_inside_a_folder_are_found() {
        let files = [
            ("src/b/mod.rs", "mod c; mod d; mod e;"),
            ("src/b/c.rs", "use super::d::D;"),
            ("src/b/d.rs", "use crate::b::e::E;"),
            ("src/b/e.rs", "use super::c::C;"),
        ];
        assert_eq!(check(&tree(&files)), [Offence::new("crates/base/a::b", 3, "3 modules use each other: c, d, e")]);
    }
}
