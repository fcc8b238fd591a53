//! What an edge remembers of how it was started: its runtime, and the kubeconfig of the cluster runtime.
//!
//! The record is a file in the data directory, written once the edge has joined. A later start that does not name a
//! runtime uses the recorded one, and a start that names another is refused: two runtimes on one data directory would
//! register two Nodes for the same Pods.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{edge::Runtime, up::words};

const FILE: &str = "runtime.json";
/// The process runtime makes this directory at its first start.
const KEEPER: &str = "keeper";

/// The part of the settings that belongs to the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub runtime: Runtime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
}

/// What flags, environment and configuration file say.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub runtime: Option<Runtime>,
    pub kubeconfig: Option<PathBuf>,
    /// `--change-runtime`.
    pub change: bool,
}

/// What is known of the data directory.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub record: Option<Record>,
    /// An edge has joined here.
    pub joined: bool,
    /// The process runtime has run here.
    pub ran_processes: bool,
}

impl Found {
    pub fn read(data_dir: &Path) -> Result<Self> {
        let path = data_dir.join(FILE);
        let record = match fs::read(&path) {
            Ok(text) => Some(serde_json::from_slice(&text).with_context(|| {
                format!("{} is damaged: remove it and name the edge's --runtime at the next start", path.display())
            })?),
            // Anything but a missing file in a directory that can be read is found by whoever opens the store.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Ok(Self { record, joined: words::joined(data_dir), ran_processes: data_dir.join(KEEPER).exists() })
    }
}

/// The runtime of this start, or why there is none.
pub fn decide(said: &Said, found: &Found, data_dir: &Path) -> Result<Record> {
    let dir = data_dir.display();
    if said.change && said.runtime.is_none() {
        bail!("--change-runtime changes the runtime that {dir} remembers: say to which with --runtime");
    }
    let chosen = match &found.record {
        Some(record) if !said.change => {
            agree(said, record, data_dir)?;
            record.clone()
        }
        None if said.runtime.is_none() && found.joined && !found.ran_processes => bail!(
            "{dir} belongs to an edge that an earlier version ran with another runtime than process, and does not say \
             which: name it once with --runtime kubelet or --runtime cluster (or --runtime process to change it)"
        ),
        _ => Record { runtime: said.runtime.unwrap_or_default(), kubeconfig: said.kubeconfig.clone() },
    };
    if said.kubeconfig.is_some() && chosen.runtime != Runtime::Cluster {
        bail!(
            "--kubeconfig names the cluster of --runtime cluster, and this edge has --runtime {}: leave one of them \
             out",
            chosen.runtime
        );
    }
    Ok(chosen)
}

/// What is said again must be what is recorded.
fn agree(said: &Said, record: &Record, data_dir: &Path) -> Result<()> {
    let dir = data_dir.display();
    if let Some(asked) = said.runtime.filter(|asked| *asked != record.runtime) {
        let is = record.runtime;
        bail!(
            "{dir} belongs to an edge with --runtime {is}, and --runtime {asked} was asked for (as a flag, in \
             SELVEDGE_RUNTIME or in the configuration file). Leave it out to go on with {is}. To change it for good, \
             start once with --runtime {asked} --change-runtime: what {is} ran for this edge is then no longer \
             looked after, and its Nodes are to be deleted"
        );
    }
    let other = |asked: &&PathBuf| Some(*asked) != record.kubeconfig.as_ref() && record.runtime == Runtime::Cluster;
    if let Some(asked) = said.kubeconfig.as_ref().filter(other) {
        let is = match &record.kubeconfig {
            Some(is) => format!("the cluster of --kubeconfig {}", is.display()),
            None => "the cluster that this program runs in".to_owned(),
        };
        let asked = asked.display();
        bail!(
            "the edge in {dir} applies everything to {is}, and --kubeconfig {asked} was asked for. Leave it out to go \
             on as before. To change it for good, start once with --runtime cluster --kubeconfig {asked} \
             --change-runtime: what was applied before stays where it is"
        );
    }
    Ok(())
}

impl Record {
    /// Writes the record, unless it is there already.
    pub fn keep(&self, data_dir: &Path) -> io::Result<()> {
        let path = data_dir.join(FILE);
        let text = serde_json::to_vec_pretty(self)?;
        if fs::read(&path).is_ok_and(|before| before == text) {
            return Ok(());
        }
        let new = path.with_extension("json.new");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        fs::File::open(data_dir)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(runtime: Option<Runtime>, kubeconfig: Option<&str>, change: bool) -> Said {
        Said { runtime, kubeconfig: kubeconfig.map(PathBuf::from), change }
    }

    fn record(runtime: Runtime, kubeconfig: Option<&str>) -> Record {
        Record { runtime, kubeconfig: kubeconfig.map(PathBuf::from) }
    }

    #[test]
    fn what_is_remembered_holds_unless_it_is_changed_deliberately() {
        use Runtime::{Cluster, Kubelet, Process};
        let of = |found: Record| Found { record: Some(found), joined: true, ran_processes: false };
        let kubelet = of(record(Kubelet, None));
        let cluster = of(record(Cluster, Some("/a")));
        let within = of(record(Cluster, None));
        let new = Found::default();
        let earlier = |ran_processes| Found { record: None, joined: true, ran_processes };
        for (what, said, found, expected) in [
            ("the default of a new edge", said(None, None, false), &new, Ok(record(Process, None))),
            ("a new edge", said(Some(Cluster), Some("/a"), false), &new, Ok(record(Cluster, Some("/a")))),
            ("nothing is said", said(None, None, false), &kubelet, Ok(record(Kubelet, None))),
            ("the same is said", said(Some(Kubelet), None, false), &kubelet, Ok(record(Kubelet, None))),
            (
                "another",
                said(Some(Process), None, false),
                &kubelet,
                Err(vec!["kubelet", "process", "--change-runtime"]),
            ),
            ("deliberately", said(Some(Process), None, true), &kubelet, Ok(record(Process, None))),
            ("to what", said(None, None, true), &kubelet, Err(vec!["--runtime"])),
            ("the cluster's file", said(None, None, false), &cluster, Ok(record(Cluster, Some("/a")))),
            ("the same file", said(None, Some("/a"), false), &cluster, Ok(record(Cluster, Some("/a")))),
            ("the runtime alone", said(Some(Cluster), None, false), &cluster, Ok(record(Cluster, Some("/a")))),
            ("another file", said(None, Some("/b"), false), &cluster, Err(vec!["/a", "/b", "--change-runtime"])),
            ("a file", said(None, Some("/b"), false), &within, Err(vec!["runs in", "/b", "--change-runtime"])),
            ("no file any more", said(Some(Cluster), None, true), &cluster, Ok(record(Cluster, None))),
            ("no cluster", said(None, Some("/a"), false), &kubelet, Err(vec!["--kubeconfig", "kubelet"])),
            ("no cluster at all", said(None, Some("/a"), false), &new, Err(vec!["--kubeconfig", "process"])),
            ("an earlier version's", said(None, None, false), &earlier(true), Ok(record(Process, None))),
            ("with what it had", said(Some(Kubelet), None, false), &earlier(false), Ok(record(Kubelet, None))),
            ("of unknown runtime", said(None, None, false), &earlier(false), Err(vec!["--runtime kubelet"])),
        ] {
            let decided = decide(&said, found, Path::new("/data"));
            match (decided, expected) {
                (Ok(decided), Ok(expected)) => assert_eq!(decided, expected, "{what}"),
                (Err(error), Err(words)) => {
                    let text = error.to_string();
                    assert!(words.iter().all(|word| text.contains(word)), "{what}: {text}");
                }
                (decided, _) => panic!("{what}: {decided:?}"),
            }
        }
    }

    #[test]
    fn the_record_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Found::read(dir.path()).unwrap().record, None);
        for record in [record(Runtime::Kubelet, None), record(Runtime::Cluster, Some("/etc/k"))] {
            record.keep(dir.path()).unwrap();
            record.keep(dir.path()).unwrap();
            assert_eq!(Found::read(dir.path()).unwrap().record, Some(record));
        }
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(format!("{:#}", Found::read(dir.path()).unwrap_err()).contains(FILE));
    }
}
