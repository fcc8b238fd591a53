//! What an edge keeps of its joining: one file, so that key and certificate change together.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use kinds::{EdgeId, JoinReply};
use link::transport::Identity;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use super::Error;

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Saved {
    pub center: String,
    pub workspace: String,
    pub name: String,
    /// The identifier of the token with which it joined: another one means to join anew.
    pub token: String,
    pub certificate_authority: String,
    pub certificate: String,
    pub key: String,
    /// When the certificate came, and when it ends, in seconds since 1970, by the clock of this edge.
    pub since: i64,
    pub ends: i64,
}

pub fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("edge.json")
}

impl Saved {
    /// `None` before the edge has joined.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, Error> {
        let path = path(data_dir);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::File { path, error }),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| Error::Damaged { path, why: error.to_string() })
    }

    /// All of it or nothing, for the owner alone.
    pub fn write(&self, data_dir: &Path) -> Result<(), Error> {
        let path = path(data_dir);
        let write = || {
            fs::create_dir_all(data_dir)?;
            let new = path.with_extension("json.new");
            let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(data_dir)?.sync_all()
        };
        write().map_err(|error| Error::File { path: path.clone(), error })
    }

    pub fn edge(&self) -> EdgeId {
        EdgeId::new(&self.workspace, &self.name)
    }

    /// What the center answered to a request for `key`. Times are the center's: they become ours, however far apart the clocks are.
    pub fn take(&mut self, reply: JoinReply, key: String, now: i64) -> Result<(), Error> {
        let (Some(certificate), Some(ends)) = (reply.certificate, reply.ends) else {
            return Err(Error::Answer("there is no certificate in it".to_owned()));
        };
        certificates(&reply.certificate_authority)?;
        (self.certificate, self.key, self.since, self.ends) = (certificate, key, now, now + (ends - reply.time));
        self.certificate_authority = reply.certificate_authority;
        self.identity().map(drop)
    }

    pub fn identity(&self) -> Result<Identity, Error> {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|e| Error::Answer(e.to_string()))?;
        Ok(Identity { chain: certificates(&self.certificate)?, key })
    }

    /// How long the certificate can wait to be renewed: until four fifths of its time are over. Not at all if the clock went back
    /// behind the time when it came, as then nobody knows how much is over.
    pub fn waits(&self, now: i64) -> u64 {
        let at = self.since + (self.ends - self.since).max(0) / 5 * 4;
        if now < self.since { 0 } else { u64::try_from(at - now).unwrap_or_default() }
    }
}

pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(Error::Answer("there is no certificate in it".to_owned())),
        Err(error) => Err(Error::Answer(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_reads_back() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("new");
        assert!(Saved::read(&data).unwrap().is_none());
        let saved = Saved { name: "florin".into(), since: 100, ends: 1100, ..Saved::default() };
        saved.write(&data).unwrap();
        saved.write(&data).unwrap();
        let read = Saved::read(&data).unwrap().unwrap();
        assert_eq!((read.name.as_str(), read.waits(100), read.waits(900), read.waits(99)), ("florin", 800, 0, 0));
        assert_eq!(fs::metadata(path(&data)).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(path(&data), "{").unwrap();
        assert!(matches!(Saved::read(&data), Err(Error::Damaged { .. })));
    }
}
