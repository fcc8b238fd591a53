//! What can be wrong with the files that make up the server's identity.

use std::{io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// A file that cannot be replaced without consequences for clients.
    #[error("{} is damaged: {why}. Restore it from a backup; if there is none, delete it to have a new one made, {loss}", path.display())]
    Damaged { path: PathBuf, why: String, loss: &'static str },
    /// A file that the operator wrote.
    #[error("{}: {why}", path.display())]
    Configuration { path: PathBuf, why: String },
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot share the identity: {0}")]
    Store(#[from] store::Error),
    #[error("cannot make a key: {0}")]
    Key(String),
}

impl Error {
    /// There is no room on the disk.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}
