//! The keys that sign ServiceAccount tokens. The newest signs, all verify, so that a new key can come while tokens of the
//! old one are still in use.
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

/// A key that no longer signs is kept for as long as a token may live, and a day.
const KEEP: i64 = (365 + 1) * 24 * 60 * 60;

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
}

impl Keys {
    /// Reads the keys in `dir`. If there are none, one is being made when this returns.
    pub fn open(dir: &Path, now: i64) -> Result<Arc<Self>, Error> {
        files::make_dir(dir)?;
        let listing = fs::read_dir(dir).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let entries = listing.map_err(|source| Error::File { what: "list", path: dir.to_owned(), source })?;
        let mut ring = Vec::new();
        for path in entries.into_iter().map(|entry| entry.path()) {
            if let Some(made) = made_at(&path) {
                ring.push(Arc::new(read(&path, made)?));
            }
        }
        ring.sort_by_key(|key| std::cmp::Reverse(key.made));
        let is_first = ring.is_empty();
        let keys = Arc::new(Self { dir: dir.to_owned(), ring: RwLock::new(ring), first: OnceLock::new() });
        if is_first {
            let making = keys.clone();
            let spawned = std::thread::Builder::new().name("first-key".to_owned()).spawn(move || making.ensure(now));
            spawned.map_err(|e| Error::Key(e.to_string()))?;
        }
        Ok(keys)
    }

    fn ensure(&self, now: i64) -> Result<(), Error> {
        let made = self.first.get_or_init(|| {
            let empty = self.ring.read().unwrap_or_else(PoisonError::into_inner).is_empty();
            if empty { self.add(now).map_err(|e| e.to_string()) } else { Ok(()) }
        });
        made.clone().map_err(Error::Key)
    }

    fn add(&self, now: i64) -> Result<(), Error> {
        let pair = KeyPair::generate(KeySize::Rsa2048).map_err(|e| Error::Key(e.to_string()))?;
        let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|e| Error::Key(e.to_string()))?;
        files::write(&self.dir.join(format!("service-account-{now}.key")), pem(der.as_ref()).as_bytes())?;
        let key = Arc::new(Key::new(pair, now)?);
        self.ring.write().unwrap_or_else(PoisonError::into_inner).insert(0, key);
        Ok(())
    }

    /// A new key signs from now on. Keys whose tokens have all ended go away.
    pub fn rotate(&self, now: i64) -> Result<(), Error> {
        self.ensure(now)?;
        self.add(now)?;
        let mut ring = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        // A key stopped signing when the next newer one was made.
        let ended = |i: usize, ring: &[Arc<Key>]| i > 0 && ring[i - 1].made + KEEP < now;
        let keep = (0..ring.len()).find(|i| ended(*i, &ring)).unwrap_or(ring.len());
        for old in ring.split_off(keep) {
            let path = self.dir.join(format!("service-account-{}.key", old.made));
            fs::remove_file(&path).map_err(|source| Error::File { what: "remove", path, source })?;
        }
        Ok(())
    }

    /// All keys, the one that signs first.
    pub fn all(&self, now: i64) -> Result<Vec<Arc<Key>>, Error> {
        self.ensure(now)?;
        Ok(self.ring.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// `service-account-<seconds>.key`
fn made_at(path: &Path) -> Option<i64> {
    path.file_name()?.to_str()?.strip_prefix("service-account-")?.strip_suffix(".key")?.parse().ok()
}

fn read(path: &Path, made: i64) -> Result<Key, Error> {
    let damaged = |why: String| Error::Damaged {
        path: path.to_owned(),
        why,
        loss: "and all tokens that were signed with it will be refused",
    };
    let text = files::read(path)?.unwrap_or_default();
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
        let keys = Keys::open(dir.path(), 100).unwrap();
        let first = keys.all(100).unwrap()[0].clone();
        let signature = first.sign(b"hello").unwrap();
        assert!(first.verify(b"hello", &signature));
        assert!(!first.verify(b"other", &signature));
        assert_eq!(first.jwk()["e"], "AQAB");

        keys.rotate(200).unwrap();
        let both = keys.all(200).unwrap();
        assert_eq!(both.len(), 2);
        assert_ne!(both[0].id(), first.id());
        assert_eq!(both[1].id(), first.id());

        let again = Keys::open(dir.path(), 300).unwrap().all(300).unwrap();
        assert_eq!(again.iter().map(|k| k.id()).collect::<Vec<_>>(), both.iter().map(|k| k.id()).collect::<Vec<_>>());
        assert!(again[1].verify(b"hello", &signature));

        keys.rotate(200 + KEEP + 1).unwrap();
        assert_eq!(keys.all(0).unwrap().len(), 2, "the first has ended");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);

        fs::write(dir.path().join("service-account-200.key"), "x").unwrap();
        let error = Keys::open(dir.path(), 300).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("service-account-200.key is damaged"), "{error}");
    }
}
