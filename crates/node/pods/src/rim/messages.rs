//! The last words of containers: what they wrote into their termination message file, or the end of their log.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Pod;

use crate::{
    runtime::{Container, ContainerId},
    spec,
};

const LONGEST: u64 = 4096;
const OF_LOG: u64 = 2048;
const LINES: usize = 80;

/// The file that is mounted for it.
pub fn file(dir: &Path, id: &ContainerId) -> PathBuf {
    dir.join("containers").join(&id.name).join(format!("{}.message", id.attempt))
}

/// Fills in what a run that has ended said last.
pub fn fill(dir: &Path, pod: &Pod, container: &mut Container) {
    let path = file(dir, &container.id);
    let Some(exit) = container.exit.as_mut().filter(|exit| exit.message.is_empty()) else { return };
    exit.message = end_of(&path, LONGEST);
    let spec = spec::container(pod, &container.id.name);
    let policy = spec.as_ref().and_then(|spec| spec.termination_message_policy.as_deref());
    if exit.message.is_empty() && exit.code != 0 && policy == Some("FallbackToLogsOnError") {
        exit.message = lines(&end_of(&container.log, OF_LOG * 2));
    }
}

fn end_of(path: &Path, most: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// The text of a log's last lines, without what is before it on each.
fn lines(log: &str) -> String {
    let text = |line: &str| line.splitn(4, ' ').nth(3).map(str::to_owned);
    let all: Vec<String> = log.lines().filter_map(text).collect();
    let mut kept = all[all.len().saturating_sub(LINES)..].join("\n");
    let most = usize::try_from(OF_LOG).unwrap_or(usize::MAX);
    while kept.len() > most {
        let cut = kept.chars().next().map_or(1, char::len_utf8);
        kept.drain(..cut);
    }
    if !kept.is_empty() {
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::Exit;

    #[test]
    fn last_words() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stderr F it broke\n").unwrap();
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "a"}, {"name": "b", "terminationMessagePolicy": "FallbackToLogsOnError"},
        ]}}))
        .unwrap();
        let said = |name: &str, code: i32, message: Option<&str>| {
            let id = ContainerId { pod: "u".into(), name: name.into(), attempt: 0 };
            let path = file(dir.path(), &id);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, message.unwrap_or_default()).unwrap();
            let exit = Exit { code, ..Exit::default() };
            let mut container =
                Container { id, image: String::new(), log: log.clone(), started_at: String::new(), exit: Some(exit) };
            fill(dir.path(), &pod, &mut container);
            container.exit.unwrap().message
        };
        assert_eq!(said("a", 1, Some("bye")), "bye");
        assert_eq!(said("a", 1, None), "");
        assert_eq!(said("b", 0, None), "");
        assert_eq!(said("b", 1, None), "one\nit broke\n");
        assert_eq!(said("b", 1, Some("bye")), "bye");
        assert_eq!(said("a", 1, Some(&"x".repeat(5000))).len(), 4096);
    }
}
