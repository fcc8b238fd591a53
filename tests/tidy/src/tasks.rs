//! Tasks are started by `base/tasks`, which names and supervises them: a panic in a bare task ends it unseen.

use crate::{Offence, Tree, lines_text, source::tokens};

const SUPERVISOR: &str = "crates/base/tasks/";

fn spawns(code: &str) -> Vec<usize> {
    let found: Vec<(&str, usize)> = tokens(code).collect();
    let starts = |at: usize| {
        let names: Vec<&str> = found[at..].iter().take(3).map(|(name, _)| *name).collect();
        let is_path = matches!(names[..], ["tokio" | "task", "::", "spawn" | "spawn_local"]);
        is_path && found.get(at + 3).is_some_and(|(name, _)| *name == "(" || *name == "::")
    };
    (0..found.len()).filter(|at| starts(*at)).map(|at| found[at].1).collect()
}

pub fn check(tree: &Tree) -> Vec<Offence> {
    let programs = tree.programs().filter(|(path, _)| !path.starts_with(SUPERVISOR));
    programs
        .filter_map(|(path, source)| {
            let lines = spawns(&source.code);
            let detail = format!("a bare task, use base/tasks, {}", lines_text(&lines));
            (!lines.is_empty()).then(|| Offence::new(path, lines.len(), detail))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_tasks_are_found_outside_tests_and_the_supervisor() {
        let bare = "fn a() { tokio::spawn(b()); task::spawn(c()); set.spawn(d()); }\n// tokio::spawn(e())\n\
                    #[cfg(test)]\nmod tests { fn f() { tokio::spawn(g()); } }\n";
        let tree = Tree::of(&[
            ("crates/base/tasks/Cargo.toml", ""),
            ("crates/base/tasks/src/lib.rs", bare),
            ("crates/fabric/edge/Cargo.toml", ""),
            ("crates/fabric/edge/src/lib.rs", bare),
            ("crates/fabric/edge/src/fine.rs", "fn a() { tasks::spawn(\"name\", b()); }\n"),
        ]);
        let found = check(&tree);
        assert_eq!(found, [Offence::new("crates/fabric/edge/src/lib.rs", 2, "a bare task, use base/tasks, line 1, 1")]);
    }
}
