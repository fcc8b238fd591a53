//! What the keeper remembers, in a file that only grows until it is written anew: a line for everything that happened.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    net::Ipv4Addr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use pods::runtime::{Container, ContainerId, Exit};
use serde::{Deserialize, Serialize};

/// Below this it is not worth writing anew.
const SMALL: u64 = 256 << 10;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    Begun(Record),
    Ended { id: ContainerId, exit: Exit },
    Forgotten { id: ContainerId },
    Address { pod: String, address: Ipv4Addr },
    PodForgotten { pod: String },
}

/// A container as the keeper remembers it. Its environment is not here: there may be secrets in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub container: Container,
    pub pid: i32,
    /// See [`crate::tree::Stat::started`]; only during this boot.
    pub started: u64,
    pub boot: String,
}

/// The sum of all entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub containers: BTreeMap<ContainerId, Record>,
    pub addresses: BTreeMap<String, Ipv4Addr>,
    pub last_address: Option<Ipv4Addr>,
}

impl State {
    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Begun(record) => _ = self.containers.insert(record.container.id.clone(), record),
            Entry::Ended { id, exit } => {
                if let Some(record) = self.containers.get_mut(&id) {
                    record.container.exit = Some(exit);
                }
            }
            Entry::Forgotten { id } => _ = self.containers.remove(&id),
            Entry::Address { pod, address } => {
                self.last_address = Some(address);
                self.addresses.insert(pod, address);
            }
            Entry::PodForgotten { pod } => _ = self.addresses.remove(&pod),
        }
    }

    /// Entries that sum up to this.
    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for record in self.containers.values() {
            entries.push(Entry::Begun(record.clone()));
        }
        let last = |address: &Ipv4Addr| Some(*address) == self.last_address;
        let (after, before): (Vec<_>, Vec<_>) = self.addresses.iter().partition(|(_, address)| last(address));
        for (pod, address) in before.into_iter().chain(after) {
            entries.push(Entry::Address { pod: pod.clone(), address: *address });
        }
        entries
    }
}

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    size: u64,
    pub state: State,
    /// Not on disk yet.
    pending: Vec<u8>,
    rewritten_at: u64,
}

impl Journal {
    /// What was being written when the keeper died is left out.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().create(true).read(true).append(true).mode(0o600).truncate(false).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (mut state, mut size) = (State::default(), 0_u64);
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // A line without its end was not acknowledged to anybody. One that cannot be read ends what is known for certain.
            match serde_json::from_slice(line) {
                Ok(entry) if line.ends_with(b"\n") => state.apply(entry),
                _ => break,
            }
            size += line.len() as u64;
        }
        if size < bytes.len() as u64 {
            file.set_len(size)?;
        }
        Ok(Self { path: path.to_owned(), file, size, state, pending: Vec::new(), rewritten_at: 0 })
    }

    /// Known at once, on disk with the next [`Journal::commit`].
    pub fn push(&mut self, entry: Entry) {
        if serde_json::to_writer(&mut self.pending, &entry).is_ok() {
            self.pending.push(b'\n');
        }
        self.state.apply(entry);
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// All that happened is on disk, or nothing of it: then it is tried again with the next one.
    pub fn commit(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.file.write_all(&self.pending).and_then(|()| self.file.sync_data()) {
            let _ = self.file.set_len(self.size);
            return Err(error);
        }
        self.size += self.pending.len() as u64;
        self.pending = Vec::new();
        if self.size > SMALL && self.size > 4 * self.rewritten_at {
            // Failing is no harm: the old one is whole.
            let _ = self.rewrite();
        }
        Ok(())
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        for entry in self.state.entries() {
            serde_json::to_writer(&mut bytes, &entry)?;
            bytes.push(b'\n');
        }
        let next = self.path.with_extension("next");
        let _ = fs::remove_file(&next);
        let mut file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&next)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&next, &self.path)?;
        if let Some(directory) = self.path.parent() {
            File::open(directory)?.sync_all()?;
        }
        (self.file, self.size, self.rewritten_at) = (file, bytes.len() as u64, bytes.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(pod: &str, attempt: u32) -> ContainerId {
        ContainerId { pod: pod.into(), name: "c".into(), attempt }
    }

    fn begun(id: &ContainerId) -> Entry {
        let container = Container {
            id: id.clone(),
            image: "i".into(),
            log: format!("/logs/{}/{}", id.pod, id.attempt).into(),
            started_at: "2026-01-01T00:00:00Z".into(),
            exit: None,
        };
        Entry::Begun(Record { container, pid: 7, started: 9, boot: "b".into() })
    }

    fn ended(id: &ContainerId) -> Entry {
        let exit = Exit { code: 3, finished_at: "2026-01-01T00:00:01Z".into(), ..Exit::default() };
        Entry::Ended { id: id.clone(), exit }
    }

    fn some() -> Vec<Entry> {
        let address = |pod: &str, last| Entry::Address { pod: pod.into(), address: Ipv4Addr::new(127, 9, 0, last) };
        vec![
            address("a", 3),
            begun(&id("a", 0)),
            ended(&id("a", 0)),
            begun(&id("a", 1)),
            Entry::Forgotten { id: id("a", 0) },
            address("b", 2),
            begun(&id("b", 0)),
            ended(&id("b", 0)),
            Entry::Forgotten { id: id("b", 0) },
            address("c", 4),
            Entry::PodForgotten { pod: "b".into() },
        ]
    }

    #[test]
    fn all_of_it_is_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut journal = Journal::open(&path).unwrap();
        some().into_iter().for_each(|entry| journal.push(entry));
        journal.commit().unwrap();
        let state = journal.state.clone();
        assert_eq!(state.containers.len(), 1);
        assert_eq!(state.addresses.len(), 2);
        assert!(!state.addresses.contains_key("b"));
        assert_eq!(Journal::open(&path).unwrap().state, state);
        journal.rewrite().unwrap();
        assert_eq!(Journal::open(&path).unwrap().state, state);
        journal.push(Entry::Forgotten { id: id("a", 1) });
        journal.commit().unwrap();
        assert_eq!(Journal::open(&path).unwrap().state, journal.state);
    }

    #[test]
    fn wherever_it_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut journal = Journal::open(&path).unwrap();
        let mut states = vec![State::default()];
        for entry in some() {
            journal.push(entry);
            states.push(journal.state.clone());
        }
        journal.commit().unwrap();
        let whole = fs::read(&path).unwrap();
        // Not at every byte: each costs two writes to the disk.
        for length in
            (0..=whole.len()).filter(|length| length % 7 == 0 || whole.get(length.wrapping_sub(1)) == Some(&b'\n'))
        {
            fs::write(&path, &whole[..length]).unwrap();
            let known = whole[..length].iter().filter(|byte| **byte == b'\n').count();
            let mut again = Journal::open(&path).unwrap();
            assert_eq!(again.state, states[known], "cut at {length}");
            again.push(begun(&id("z", 0)));
            again.commit().unwrap();
            assert!(Journal::open(&path).unwrap().state.containers.contains_key(&id("z", 0)), "cut at {length}");
        }
    }

    #[test]
    fn does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut journal = Journal::open(&path).unwrap();
        for attempt in 0..3000 {
            journal.push(begun(&id("a", attempt)));
            journal.push(ended(&id("a", attempt)));
            journal.push(Entry::Forgotten { id: id("a", attempt) });
            if attempt % 10 == 0 {
                journal.commit().unwrap();
            }
        }
        assert!(fs::metadata(&path).unwrap().len() < 2 * SMALL);
        assert_eq!(journal.state, State::default());
    }

    #[test]
    fn a_full_disk_keeps_it_for_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut journal = Journal::open(&path).unwrap();
        let good = std::mem::replace(&mut journal.file, OpenOptions::new().write(true).open("/dev/full").unwrap());
        journal.push(begun(&id("a", 0)));
        assert!(journal.commit().is_err() && journal.has_pending());
        journal.file = good;
        journal.push(ended(&id("a", 0)));
        journal.commit().unwrap();
        assert_eq!(Journal::open(&path).unwrap().state, journal.state);
    }
}
