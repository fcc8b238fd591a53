//! The addresses of an edge that has no network of its own: `127.X.0.0/16`, where X is kept.
//!
//! Everything in 127.0.0.0/8 is this machine, without any interface being made, and without root. Several edges on one machine must not use the same
//! part of it, also while some of them are stopped: so each writes down where its part is kept, and a part is free if nobody keeps it.

use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

/// The file in an edge's data directory that says which part is its own.
const FILE: &str = "network";
/// 127.0 to 127.31 are what people, resolvers and tests use.
const PARTS: std::ops::RangeInclusive<u8> = 32..=254;

/// `127.X.0.0/16`: Pods in the lower half, Services in the upper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(u8);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot keep the network of this edge in {path}: {error}")]
    Keep { path: PathBuf, error: io::Error },
    #[error(
        "{path} says {said:?}, which is no network: it should say 127.X.0.0/16. Without the file another one is chosen"
    )]
    Unreadable { path: PathBuf, said: String },
}

impl Network {
    /// The one that this edge has, chosen now if there is none yet.
    pub fn of(data_dir: &Path) -> Result<Self, Error> {
        Self::claimed(data_dir, &std::env::temp_dir().join("selvedge-networks"))
    }

    fn claimed(data_dir: &Path, claims: &Path) -> Result<Self, Error> {
        let path = data_dir.join(FILE);
        let keep = |error| Error::Keep { path: path.clone(), error };
        fs::create_dir_all(data_dir).map_err(keep)?;
        // Others look for it from elsewhere.
        let data_dir = fs::canonicalize(data_dir).map_err(keep)?;
        if let Some(kept) = read(&path)? {
            // After a reboot the list may be gone; and it says who was started last.
            if kept.claim(&data_dir, claims) {
                let _ = fs::write(claims.join(kept.0.to_string()), data_dir.as_os_str().as_encoded_bytes());
            }
            return Ok(kept);
        }
        // Not the same order for all of them: two that start at the same moment mostly do not even meet.
        let first = usize::from(hash(data_dir.as_os_str().as_encoded_bytes()));
        let count = PARTS.count();
        for n in 0..count {
            let Some(part) = PARTS.clone().nth((first + n) % count) else { continue };
            let network = Self(part);
            if network.claim(&data_dir, claims) {
                fs::write(&path, format!("{network}\n")).map_err(keep)?;
                return Ok(network);
            }
        }
        // Hundreds of edges were here, mostly in tests: the one that was started longest ago is the least likely to come back.
        let started = |part: &u8| fs::metadata(claims.join(part.to_string())).and_then(|file| file.modified()).ok();
        let oldest = Self(PARTS.min_by_key(started).unwrap_or(*PARTS.start()));
        let _ = fs::write(claims.join(oldest.0.to_string()), data_dir.as_os_str().as_encoded_bytes());
        fs::write(&path, format!("{oldest}\n")).map_err(keep)?;
        Ok(oldest)
    }

    /// Whether it is this edge's from now on. A list that cannot be written keeps nobody from starting.
    fn claim(self, data_dir: &Path, claims: &Path) -> bool {
        let claim = claims.join(self.0.to_string());
        make_shared(claims);
        for _ in 0..2 {
            match fs::OpenOptions::new().write(true).create_new(true).open(&claim) {
                Ok(mut file) => {
                    let _ = io::Write::write_all(&mut file, data_dir.as_os_str().as_encoded_bytes());
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let Ok(owner) = fs::read_to_string(&claim) else { return false };
                    let owner = Path::new(&owner);
                    if owner == data_dir {
                        return true;
                    }
                    let is_kept = matches!(read(&owner.join(FILE)), Ok(Some(kept)) if kept == self);
                    // Somebody may be between the claim and the file: their directory is there then.
                    if is_kept || owner.is_dir() && !owner.join(FILE).exists() || fs::remove_file(&claim).is_err() {
                        return false;
                    }
                }
                Err(_) => return true,
            }
        }
        false
    }

    /// The node's own address.
    pub fn node(self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0, 0, 1)
    }

    /// The range of Pods: its first address and the length of its prefix.
    pub fn pods(self) -> (Ipv4Addr, u8) {
        (Ipv4Addr::new(127, self.0, 0, 0), 17)
    }

    /// The range of Services.
    pub fn services(self) -> (Ipv4Addr, u8) {
        (Ipv4Addr::new(127, self.0, 128, 0), 17)
    }

    /// Where the resolver answers.
    pub fn dns(self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0, 128, 10)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "127.{}.0.0/16", self.0)
    }
}

fn read(path: &Path) -> Result<Option<Network>, Error> {
    let said = match fs::read_to_string(path) {
        Ok(said) => said,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::Keep { path: path.to_owned(), error }),
    };
    let part = said.trim().strip_prefix("127.").and_then(|rest| rest.strip_suffix(".0.0/16"));
    match part.and_then(|part| part.parse().ok()) {
        Some(part) => Ok(Some(Network(part))),
        None => Err(Error::Unreadable { path: path.to_owned(), said: said.trim().chars().take(40).collect() }),
    }
}

/// A directory that every user of the machine can write to, like the one that it is in.
fn make_shared(claims: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if fs::create_dir(claims).is_ok() {
        let _ = fs::set_permissions(claims, fs::Permissions::from_mode(0o1777));
    }
}

fn hash(bytes: &[u8]) -> u8 {
    let all = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let [a, b, c, d] = all.to_be_bytes();
    a ^ b ^ c ^ d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_edge_has_its_own_and_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let claims = dir.path().join("claims");
        let edge = |n: usize| dir.path().join(format!("edge{n}"));
        let all: Vec<Network> = (0..40).map(|n| Network::claimed(&edge(n), &claims).unwrap()).collect();
        let different: std::collections::BTreeSet<u8> = all.iter().map(|network| network.0).collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(Network::claimed(&edge(3), &claims).unwrap(), all[3]);
        // A reboot empties the list; what is kept stays.
        fs::remove_dir_all(&claims).unwrap();
        assert_eq!(Network::claimed(&edge(3), &claims).unwrap(), all[3]);
        assert_eq!(fs::read_to_string(claims.join(all[3].0.to_string())).unwrap(), edge(3).to_str().unwrap());
        // One whose data is gone gives its part back.
        fs::remove_dir_all(edge(3)).unwrap();
        assert!(Network::claimed(&edge(99), &claims).is_ok());
        assert!(all[3].claim(&edge(100), &claims));
    }

    #[test]
    fn with_more_edges_than_parts_nobody_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let claims = dir.path().join("claims");
        let edge = |n: usize| dir.path().join(format!("edge{n}"));
        for n in 0..PARTS.count() + 5 {
            let network = Network::claimed(&edge(n), &claims).unwrap();
            assert!(PARTS.contains(&network.0));
            assert_eq!(Network::claimed(&edge(n), &claims).unwrap(), network);
        }
    }

    #[test]
    fn parts_of_it() {
        let network = Network(77);
        assert_eq!(network.to_string(), "127.77.0.0/16");
        assert_eq!(network.services(), ("127.77.128.0".parse().unwrap(), 17));
        assert_eq!(network.pods(), ("127.77.0.0".parse().unwrap(), 17));
        assert_eq!(network.dns().to_string(), "127.77.128.10");
    }

    #[test]
    fn a_file_that_says_something_else_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "10.0.0.0/8\n").unwrap();
        let error = Network::claimed(dir.path(), &dir.path().join("c")).unwrap_err().to_string();
        assert!(error.contains("10.0.0.0/8") && error.contains("127.X.0.0/16"), "{error}");
    }
}
