//! The file that holds the keys: read, made, changed under a lock, and written whole or not at all.
//!
//! ```text
//! seals 1f2e3d4c5b6a7988 <base64>    the one that new values are sealed with
//! opens 8a9bacbdcedfe0f1 <base64>    an older one; gone when nothing needs it any more
//! next  0011223344556677 <base64>    the one that the next rotation takes: shared out before it is used
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::envelope::{KEY, Key, KeyId};
use crate::Error;

const PREFACE: &str = "\
# The keys that seal values in the store. Whoever has this file and the store can read them; without it they are lost:
# keep a copy, away from the store's backups. `selvedge secrets rotate` changes it.
";

/// The keys of the file. There is always one that seals.
#[derive(Clone)]
pub(super) struct Ring {
    pub(super) seals: Arc<Key>,
    pub(super) opens: Vec<Arc<Key>>,
    pub(super) next: Option<Arc<Key>>,
}

// === impl Ring ===

impl Ring {
    fn new() -> Result<Self, Error> {
        Ok(Self { seals: make()?, opens: Vec::new(), next: None })
    }

    pub(super) fn find(&self, id: KeyId) -> Option<&Arc<Key>> {
        [&self.seals].into_iter().chain(&self.opens).chain(&self.next).find(|key| key.id == id)
    }

    pub(super) fn ids(&self) -> String {
        let all = [&self.seals].into_iter().chain(&self.opens).chain(&self.next);
        all.map(|key| key.id.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// The next key seals from now on, and the one that did only opens.
    fn turn(&mut self) -> Result<(), Error> {
        let new = match self.next.take() {
            Some(next) => next,
            None => make()?,
        };
        self.opens.insert(0, std::mem::replace(&mut self.seals, new));
        Ok(())
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (mut seals, mut opens, mut next) = (None, Vec::new(), None);
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split_whitespace();
            let Some(role) = words.next().filter(|role| !role.starts_with('#')) else { continue };
            let at = |what: &str| format!("line {}: {what}", number + 1);
            let (Some(id), Some(secret), None) = (words.next(), words.next(), words.next()) else {
                return Err(at("a role, an id and a key should stand there"));
            };
            let bytes = STANDARD.decode(secret).map_err(|_| at("the key is not base64"))?;
            let bytes: [u8; KEY] = bytes.try_into().map_err(|_| at("the key should have 32 bytes"))?;
            let key = Arc::new(Key::new(bytes).map_err(|fault| at(&fault.to_string()))?);
            if key.id.to_string() != id {
                return Err(at(&format!("this is not key {id}: somebody changed it")));
            }
            match role {
                "seals" if seals.is_none() => seals = Some(key),
                "opens" => opens.push(key),
                "next" if next.is_none() => next = Some(key),
                "seals" | "next" => return Err(at(&format!("there is a second key that is {role:?}"))),
                _ => return Err(at("the role should be seals, opens or next")),
            }
        }
        Ok(Self { seals: seals.ok_or("no key has the role `seals`")?, opens, next })
    }

    fn text(&self) -> String {
        let line = |role: &str, key: &Arc<Key>| format!("{role} {} {}\n", key.id, STANDARD.encode(key.bytes));
        let opens = self.opens.iter().map(|key| line("opens", key));
        let next = self.next.iter().map(|key| line("next", key));
        [PREFACE.to_owned(), line("seals", &self.seals)].into_iter().chain(opens).chain(next).collect()
    }
}

fn make() -> Result<Arc<Key>, Error> {
    Key::random().map(Arc::new).map_err(|fault| Error::Unusable(format!("cannot make a key: {fault}")))
}

/// Where the keys are kept.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
}

/// What a key file holds, by the ids of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyStatus {
    pub seals: String,
    pub opens: Vec<String>,
    pub next: Option<String>,
}

// === impl KeyFile ===

impl KeyFile {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn status(&self) -> Result<Option<KeyStatus>, Error> {
        let id = |key: &Arc<Key>| key.id.to_string();
        Ok(self.read()?.map(|ring| KeyStatus {
            seals: id(&ring.seals),
            opens: ring.opens.iter().map(id).collect(),
            next: ring.next.as_ref().map(id),
        }))
    }

    /// Begins a rotation: a new key seals, the old one only opens. One that is under way is left to go on.
    pub fn rotate(&self) -> Result<KeyStatus, Error> {
        self.change(|ring| if ring.opens.is_empty() { ring.turn() } else { Ok(()) })
    }

    /// Makes the key of the next rotation, so that it can be shared out before anything is sealed with it.
    pub fn prepare(&self) -> Result<KeyStatus, Error> {
        self.change(|ring| {
            if ring.next.is_none() {
                ring.next = Some(make()?);
            }
            Ok(())
        })
    }

    /// Nothing needs these any more.
    pub(super) fn forget(&self, done: &[KeyId]) -> Result<(), Error> {
        self.change(|ring| {
            ring.opens.retain(|key| !done.contains(&key.id));
            Ok(())
        })
        .map(|_| ())
    }

    pub(super) fn read(&self) -> Result<Option<Ring>, Error> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.trouble("read", &error)),
        };
        Ring::parse(&text).map(Some).map_err(|why| {
            Error::Unusable(format!(
                "the key file {} is damaged ({why}). Restore it from its copy: nothing was changed",
                self.path.display()
            ))
        })
    }

    pub(super) fn create(&self) -> Result<Ring, Error> {
        if let Some(dir) = self.path.parent() {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(|error| self.trouble("make the directory of", &error))?;
        }
        let _turn = self.lock()?;
        // Another process may have been quicker.
        if let Some(ring) = self.read()? {
            return Ok(ring);
        }
        let ring = Ring::new()?;
        self.write(&ring)?;
        Ok(ring)
    }

    fn change(&self, edit: impl FnOnce(&mut Ring) -> Result<(), Error>) -> Result<KeyStatus, Error> {
        let missing = || {
            let path = self.path.display();
            Error::Unusable(format!("there is no key file {path}: a center makes it when it first starts"))
        };
        // Where there is none there may be no directory for the lock either.
        self.read()?.ok_or_else(missing)?;
        let _turn = self.lock()?;
        let mut ring = self.read()?.ok_or_else(missing)?;
        edit(&mut ring)?;
        self.write(&ring)?;
        self.status()?.ok_or(Error::Closed)
    }

    /// A command and a running server may change the file at the same time.
    fn lock(&self) -> Result<File, Error> {
        let beside = self.path.with_extension("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(beside);
        file.and_then(|file| file.lock().map(|()| file)).map_err(|error| self.trouble("lock", &error))
    }

    fn write(&self, ring: &Ring) -> Result<(), Error> {
        let replace = || -> io::Result<()> {
            let beside = self.path.with_extension("new");
            // Left over from a crash, it may have other permissions.
            let _ = fs::remove_file(&beside);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(ring.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, &self.path)?;
            match self.path.parent() {
                Some(dir) if !dir.as_os_str().is_empty() => File::open(dir)?.sync_all(),
                _ => Ok(()),
            }
        };
        replace().map_err(|error| self.trouble("write", &error))
    }

    fn trouble(&self, what: &str, error: &io::Error) -> Error {
        Error::Unusable(format!("cannot {what} the key file {}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_rotation_begins_once_and_keeps_the_old_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = KeyFile::new(dir.path().join("a/secrets.key"));
        assert_eq!(file.status().unwrap(), None);
        assert!(file.rotate().unwrap_err().to_string().contains("there is no key file"));
        file.create().unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        let first = file.status().unwrap().unwrap();
        assert!(first.opens.is_empty() && first.next.is_none());
        let prepared = file.prepare().unwrap();
        assert_eq!((&prepared.seals, file.prepare().unwrap()), (&first.seals, prepared.clone()));
        let turned = file.rotate().unwrap();
        assert_eq!((Some(&turned.seals), &turned.opens), (prepared.next.as_ref(), &vec![first.seals.clone()]));
        assert_eq!(file.rotate().unwrap(), turned, "one that is under way goes on");
        let old = file.read().unwrap().unwrap().opens[0].id;
        file.forget(&[old]).unwrap();
        let after = file.status().unwrap().unwrap();
        assert_eq!((after.seals, after.opens.len()), (turned.seals, 0));
    }

    #[test]
    fn damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = KeyFile::new(dir.path().join("k"));
        let good = file.create().unwrap().text();
        let id = good.split_whitespace().rev().nth(1).unwrap();
        for (text, why) in [
            (String::new(), "no key has the role"),
            (good.replace(id, "0000000000000000"), "somebody changed it"),
            (good.replace("seals", "sales"), "the role should be"),
            (format!("{good}{good}"), "second key"),
            ("seals 00 !!".into(), "base64"),
            ("seals 00 AAAA".into(), "32 bytes"),
            ("seals 00".into(), "should stand there"),
        ] {
            fs::write(file.path(), &text).unwrap();
            let said = file.status().unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("Restore"), "{text:?}: {said}");
        }
    }
}
