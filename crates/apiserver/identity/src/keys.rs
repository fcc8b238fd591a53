//! The keys that sign ServiceAccount tokens. The newest signs, all verify, so that a new key can come while tokens of the
//! old one are still in use. Each is a file; a file that appears beside a running server is a new key.
//!
//! Tokens are signed with RS256, which everybody who checks tokens from outside has to support. An RSA key takes long to
//! make, so the first one is made beside the rest of the start; whoever needs it earlier waits for it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use aws_lc_rs::{
    digest::{SHA256, digest},
    encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der},
    rand::SystemRandom,
    rsa::{KeyPair, KeySize},
    signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::{Value, json};

use super::{Error, files};

/// A key that no longer signs is kept for as long as a token may live, and this much longer.
const SPARE: i64 = 24 * 60 * 60;
/// Where several servers share their keys, a new one signs only after the others have it.
pub(super) const SETTLE: i64 = 10;

pub struct Key {
    pair: KeyPair,
    id: String,
    /// When it was made, in seconds since 1970.
    made: i64,
}

impl Key {
    fn new(pair: KeyPair, made: i64) -> Result<Self, Error> {
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(|e| Error::Key(e.to_string()))?;
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, public.as_ref()));
        Ok(Self { pair, id, made })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The RS256 signature.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature)
            .map_err(|e| Error::Key(e.to_string()))?;
        Ok(signature)
    }

    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.pair.public_key().as_ref());
        public.verify(message, signature).is_ok()
    }

    /// The public key as a JSON Web Key.
    pub fn jwk(&self) -> Value {
        let public = self.pair.public_key();
        let number =
            |number: aws_lc_rs::io::Positive<'_>| URL_SAFE_NO_PAD.encode(number.big_endian_without_leading_zero());
        json!({"use": "sig", "kty": "RSA", "kid": self.id, "alg": "RS256",
            "n": number(public.modulus()), "e": number(public.exponent())})
    }
}

pub struct Keys {
    dir: PathBuf,
    /// Newest first.
    ring: RwLock<Vec<Arc<Key>>>,
    /// Whether there is a key, or why there is none.
    first: OnceLock<Result<(), String>>,
    /// How long a key is known before it signs.
    settle: i64,
}

impl Keys {
    /// Reads the keys in `dir`. If there are none, one is being made when this returns.
    pub fn open(dir: &Path, settle: i64, now: i64) -> Result<Arc<Self>, Error> {
        files::make_dir(dir)?;
        let keys = Self { dir: dir.to_owned(), ring: RwLock::default(), first: OnceLock::new(), settle };
        keys.refresh()?;
        let keys = Arc::new(keys);
        if keys.read().is_empty() {
            let making = keys.clone();
            let spawned = std::thread::Builder::new().name("first-key".to_owned()).spawn(move || making.ensure(now));
            spawned.map_err(|e| Error::Key(e.to_string()))?;
        }
        Ok(keys)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<Key>>> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn ensure(&self, now: i64) -> Result<(), Error> {
        let made = self.first.get_or_init(|| {
            if self.read().is_empty() { self.rotate(now).map(|_| ()).map_err(|e| e.to_string()) } else { Ok(()) }
        });
        made.clone().map_err(Error::Key)
    }

    /// Reads the files that have come since the last look, and answers their names.
    pub fn refresh(&self) -> Result<Vec<String>, Error> {
        let listing = fs::read_dir(&self.dir).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let entries = listing.map_err(|source| Error::File { what: "list", path: self.dir.clone(), source })?;
        let mut new = Vec::new();
        for path in entries.into_iter().map(|entry| entry.path()) {
            let Some(made) = made_at(&path).filter(|made| self.read().iter().all(|key| key.made != *made)) else {
                continue;
            };
            self.insert(read(&path, made)?);
            new.push(name_of(made));
        }
        Ok(new)
    }

    fn insert(&self, key: Key) {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        if ring.iter().all(|known| known.id != key.id) {
            ring.push(Arc::new(key));
            ring.sort_by_key(|key| std::cmp::Reverse(key.made));
        }
    }

    /// Takes over a key that another server has made.
    pub fn adopt(&self, name: &str, pem: &str) -> Result<(), Error> {
        let path = self.dir.join(name);
        let Some(made) = made_at(&path).filter(|made| self.read().iter().all(|key| key.made != *made)) else {
            return Ok(());
        };
        if !is_name(name) {
            return Ok(());
        }
        let key = parse(&path, pem, made)?;
        files::write(&path, pem.as_bytes())?;
        self.insert(key);
        Ok(())
    }

    /// Another server has given up a key.
    pub fn forget(&self, name: &str) -> Result<(), Error> {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        if ring.len() > 1 {
            ring.retain(|key| name_of(key.made) != name);
            remove(&self.dir.join(name))?;
        }
        Ok(())
    }

    /// A new key, which signs from now on. Answers the name of its file.
    pub fn rotate(&self, now: i64) -> Result<String, Error> {
        let (name, key) = make(&self.dir, now)?;
        self.insert(key);
        Ok(name)
    }

    /// When the newest key should have been followed by another; `None` if its time has not come. A key's time is `age`
    /// (zero: never), and all servers that share keys name the same moment.
    pub fn due(&self, age: i64, now: i64) -> Option<i64> {
        let newest = self.read().first()?.made;
        let times = now.saturating_sub(newest).checked_div(age)?;
        (times > 0).then(|| newest + times * age)
    }

    /// The text of a key's file.
    pub fn text(&self, name: &str) -> Result<String, Error> {
        Ok(files::read(&self.dir.join(name))?.unwrap_or_default())
    }

    /// Gives up keys whose tokens have all ended, the longest of which last `longest`. Answers the names of their files.
    pub fn prune(&self, longest: i64, now: i64, is_used: impl Fn(&str) -> bool) -> Result<Vec<String>, Error> {
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        let mut gone = Vec::new();
        // A key stopped signing when the next newer one took over.
        for at in (1..ring.len()).rev() {
            let ended = ring[at - 1].made.saturating_add(self.settle + longest + SPARE) < now;
            if ended && !is_used(&ring[at].id) {
                let name = name_of(ring.remove(at).made);
                remove(&self.dir.join(&name))?;
                gone.push(name);
            }
        }
        Ok(gone)
    }

    /// All keys, the newest first.
    pub fn all(&self, now: i64) -> Result<Vec<Arc<Key>>, Error> {
        self.ensure(now)?;
        Ok(self.read().clone())
    }

    /// The key that signs.
    pub fn signer(&self, now: i64) -> Result<Arc<Key>, Error> {
        let all = self.all(now)?;
        let settled = all.iter().find(|key| key.made.saturating_add(self.settle) <= now);
        settled.or(all.last()).cloned().ok_or_else(|| Error::Key("there is none".to_owned()))
    }
}

/// Makes a key and its file. A running server of that directory finds it.
pub fn make(dir: &Path, now: i64) -> Result<(String, Key), Error> {
    files::make_dir(dir)?;
    let mut made = now;
    while dir.join(name_of(made)).exists() {
        made += 1;
    }
    let (name, pem, key) = generate(made)?;
    files::write(&dir.join(&name), pem.as_bytes())?;
    Ok((name, key))
}

/// A new key: the name of its file, and what belongs into it.
pub fn generate(made: i64) -> Result<(String, String, Key), Error> {
    let pair = KeyPair::generate(KeySize::Rsa2048).map_err(|e| Error::Key(e.to_string()))?;
    let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|e| Error::Key(e.to_string()))?;
    Ok((name_of(made), pem(der.as_ref()), Key::new(pair, made)?))
}

/// What servers share of this directory, made if it is not there: names of files and what is in them.
pub(super) fn found(dir: &Path, now: i64) -> Result<Vec<(String, String)>, Error> {
    if list(dir)?.is_empty() {
        make(dir, now)?;
    }
    let file = |(_, made): (String, i64)| {
        let name = name_of(made);
        Ok((name.clone(), files::read(&dir.join(&name))?.unwrap_or_default()))
    };
    list(dir)?.into_iter().map(file).collect()
}

/// Whether a file of this name holds such a key.
pub(super) fn is_name(name: &str) -> bool {
    made_at(Path::new(name)).is_some_and(|made| name_of(made) == name)
}

/// The keys of a directory, newest first: identifier, and when each was made.
pub fn list(dir: &Path) -> Result<Vec<(String, i64)>, Error> {
    let keys = Keys { dir: dir.to_owned(), ring: RwLock::default(), first: OnceLock::new(), settle: 0 };
    keys.refresh()?;
    Ok(keys.read().iter().map(|key| (key.id.clone(), key.made)).collect())
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::File { what: "remove", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

fn name_of(made: i64) -> String {
    format!("service-account-{made}.key")
}

/// `service-account-<seconds>.key`
fn made_at(path: &Path) -> Option<i64> {
    path.file_name()?.to_str()?.strip_prefix("service-account-")?.strip_suffix(".key")?.parse().ok()
}

fn read(path: &Path, made: i64) -> Result<Key, Error> {
    parse(path, &files::read(path)?.unwrap_or_default(), made)
}

fn parse(path: &Path, text: &str, made: i64) -> Result<Key, Error> {
    let damaged = |why: String| Error::Damaged {
        path: path.to_owned(),
        why,
        loss: "and all tokens that were signed with it will be refused",
    };
    let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|e| damaged(e.to_string()))?;
    let pair = KeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|e| damaged(e.to_string()))?;
    Key::new(pair, made)
}

fn pem(pkcs8: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(pkcs8);
    let mut pem = "-----BEGIN PRIVATE KEY-----\n".to_owned();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem.push_str("-----END PRIVATE KEY-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_rotate_with_overlap() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path(), 0, 100).unwrap();
        let first = keys.all(100).unwrap()[0].clone();
        let signature = first.sign(b"hello").unwrap();
        assert!(first.verify(b"hello", &signature));
        assert!(!first.verify(b"other", &signature));
        assert_eq!(first.jwk()["e"], "AQAB");

        assert_eq!([100, 101, 0, 45].map(|age| keys.due(age, 200)), [Some(200), None, None, Some(190)]);
        keys.rotate(200).unwrap();
        let both = keys.all(200).unwrap();
        assert_eq!(both.len(), 2);
        assert_eq!(both[1].id(), first.id());
        assert_ne!(keys.signer(200).unwrap().id(), first.id());

        let again = Keys::open(dir.path(), 1000, 300).unwrap();
        assert_eq!(again.all(300).unwrap()[1].id(), first.id());
        assert!(again.all(300).unwrap()[1].verify(b"hello", &signature));
        assert_eq!(again.signer(1100).unwrap().id(), first.id(), "the others may not have the new one yet");
        assert_ne!(again.signer(1200).unwrap().id(), first.id());

        let (name, third) = make(dir.path(), 200).unwrap();
        assert_eq!(name, "service-account-201.key", "no file is overwritten");
        assert_eq!(keys.refresh().unwrap(), [name]);
        assert_eq!(keys.signer(300).unwrap().id(), third.id());
        assert!(keys.refresh().unwrap().is_empty());

        assert!(keys.prune(50, 200 + 50 + SPARE, |_| false).unwrap().is_empty());
        assert!(
            keys.prune(50, 201 + 50 + SPARE, |id| id == first.id()).unwrap().is_empty(),
            "a Secret's token needs it"
        );
        assert_eq!(keys.prune(50, 201 + 50 + SPARE, |_| false).unwrap(), ["service-account-100.key"]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);

        fs::write(dir.path().join("service-account-200.key"), "x").unwrap();
        let error = Keys::open(dir.path(), 0, 300).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("service-account-200.key is damaged"), "{error}");
    }

    #[test]
    fn servers_share_keys() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ours, theirs) = (Keys::open(one.path(), 0, 100).unwrap(), Keys::open(two.path(), 0, 50).unwrap());
        theirs.all(50).unwrap();
        let made = ours.all(100).unwrap()[0].clone();
        let pem = fs::read_to_string(one.path().join("service-account-100.key")).unwrap();
        theirs.adopt("service-account-100.key", &pem).unwrap();
        theirs.adopt("service-account-100.key", &pem).unwrap();
        assert_eq!(theirs.signer(100).unwrap().id(), made.id());
        theirs.forget("service-account-50.key").unwrap();
        theirs.forget("service-account-100.key").unwrap();
        assert_eq!(theirs.all(100).unwrap().len(), 1, "the last one stays");
        assert!(theirs.adopt("../evil.key", &pem).is_ok() && !two.path().join("../evil.key").exists());
    }
}
