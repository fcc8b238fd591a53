//! Which processes there are and whose children they are, by `/proc`.

use std::{collections::BTreeSet, ffi::CStr, fs, path::Path, sync::OnceLock};

/// What the kernel tells of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub parent: i32,
    pub session: i32,
    /// Ticks that it and its children that have ended took of a CPU.
    pub ticks: u64,
    /// Ticks since boot. With its id it is one process and no other.
    pub started: u64,
    pub resident_pages: u64,
    pub has_ended: bool,
}

/// `/proc/<pid>/stat`: the name may contain anything, so it is read from behind it.
fn parse(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        ticks: number(11)? + number(12)? + number(13)? + number(14)?,
        started: number(19)?,
        resident_pages: number(21)?,
        has_ended: matches!(fields.first(), Some(&("Z" | "X"))),
    })
}

pub fn stat(pid: i32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// All processes of this machine that we may see.
pub fn all() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn kernel_lists_children() -> bool {
    static LISTS: OnceLock<bool> = OnceLock::new();
    *LISTS.get_or_init(|| Path::new("/proc/thread-self/children").exists())
}

/// Those that are not reaped yet included.
pub fn children(pid: i32) -> Vec<i32> {
    if !kernel_lists_children() {
        return all().into_iter().filter(|child| stat(*child).is_some_and(|stat| stat.parent == pid)).collect();
    }
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .collect()
}

/// The process and all below it, itself first. A container's first process adopts what its own children leave behind, so nothing gets away
/// as long as it lives.
pub fn with_descendants(pid: i32) -> Vec<i32> {
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(next) = found.get(at) {
        for child in children(*next) {
            if !found.contains(&child) {
                found.push(child);
            }
        }
        at += 1;
    }
    found
}

/// Processes in whose environment there is a variable that begins so.
pub fn marked(mark: &str) -> Vec<i32> {
    all().into_iter().filter(|pid| is_marked(*pid, mark)).collect()
}

fn is_marked(pid: i32, mark: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
}

/// All processes below others of this name. This process and those below it are not among them.
pub fn below_named(name: &CStr) -> BTreeSet<i32> {
    let own = std::process::id() as i32;
    let is_named = |pid: &i32| {
        let found = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        // The kernel cuts names.
        let wanted = name.to_bytes();
        found.trim_ascii_end() == &wanted[..wanted.len().min(15)]
    };
    let named = all().into_iter().filter(|pid| *pid != own).filter(is_named);
    named.flat_map(|pid| with_descendants(pid).split_off(1)).filter(|pid| *pid != own).collect()
}

/// Changes with every start of the machine.
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_everything_in_it() {
        let text = "42 (a) R 1 (b) S 7 8 9 0 -1 4194304 1 0 0 0 10 20 3 4 20 0 1 0 5555 1000 77 184\n";
        let stat = parse(text).unwrap();
        let expected = Stat { parent: 7, session: 9, ticks: 37, started: 5555, resident_pages: 77, has_ended: false };
        assert_eq!(stat, expected);
        assert!(parse("42 (x) Z 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0").unwrap().has_ended);
        for wrong in ["", "42", "42 (x", "42 (x) R", "42 (x) R a b c"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn finds_children_and_marks() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & wait"])
            .env("SELVEDGE_TREE_TEST", "one two")
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        // A process that is just becoming another program has no environment for a moment.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let found = loop {
            let found = with_descendants(pid);
            if found.len() > 1 && found.iter().all(|pid| is_marked(*pid, "SELVEDGE_TREE_TEST=one")) {
                break found;
            }
            assert!(std::time::Instant::now() < end, "{found:?}");
        };
        assert_eq!(found[0], pid);
        assert_eq!(stat(found[1]).unwrap().parent, pid);
        assert!(children(std::process::id() as i32).contains(&pid));
        assert!(!is_marked(pid, "SELVEDGE_TREE_TEST=two"));
        for pid in found {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        child.wait().unwrap();
        assert!(!boot().is_empty());
    }
}
