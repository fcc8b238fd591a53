//! Why an edge cannot join, each in its own words.

use std::path::PathBuf;

use link::transport;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Token(&'static str),
    #[error(
        "{} holds no edge that has joined: pass --center, --token and --name (`selvedge join-token create` at the center prints a token)",
        .data.display()
    )]
    NotJoined { data: PathBuf },
    #[error("{} belongs to the edge {is}, not to {asked}: name another --data-dir, or leave out --name", .data.display())]
    OtherName { data: PathBuf, is: String, asked: String },
    #[error(
        "whoever answers at {center} is not the center that the token is from: it shows an authority with the key {shown}. Is the address \
         right? If so, somebody is between; the token was not sent"
    )]
    OtherAuthority { center: String, shown: String },
    #[error(
        "the clocks disagree: it is {} here and {} at the center, so certificates are not valid here; set the clock of this machine",
        shown(*.here), shown(*.center)
    )]
    Clock { here: i64, center: i64 },
    #[error("the certificate of this edge ended at {}, and it is {} here: join again with a new --token, or set the clock", shown(*.ended), shown(*.here))]
    Ended { ended: i64, here: i64 },
    #[error(
        "the center's address {center} is not among the names of its certificate: reach it by another, or start it with --tls-names {host}"
    )]
    Name { center: String, host: String },
    #[error(transparent)]
    Link(#[from] transport::Error),
    #[error("the center refuses: {message}")]
    Refused { message: String, may_pass: bool },
    #[error("the center's answer makes no sense: {0}. Does a center answer at this address?")]
    Answer(String),
    #[error("cannot make a key: {0}")]
    Key(#[from] rcgen::Error),
    #[error("cannot read or write {}: {error}", .path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{} is damaged: {why}. Remove it and join again with a new token", .path.display())]
    Damaged { path: PathBuf, why: String },
}

impl Error {
    /// Whether it may go away by itself.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Link(error) => error.may_pass(),
            Self::Refused { may_pass, .. } => *may_pass,
            _ => false,
        }
    }

    /// There is no room on the disk.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::File { error, .. } if error.kind() == std::io::ErrorKind::StorageFull)
    }

    /// With a pinned authority, a handshake fails because of the clock, or the name.
    pub(super) fn of_handshake(error: transport::Error, here: i64, center: i64) -> Self {
        use rustls::{CertificateError as Why, Error::InvalidCertificate};
        let transport::Error::Tls { address, error: InvalidCertificate(why) } = &error else { return error.into() };
        match why {
            Why::Expired | Why::ExpiredContext { .. } | Why::NotValidYet | Why::NotValidYetContext { .. } => {
                Self::Clock { here, center }
            }
            Why::NotValidForName | Why::NotValidForNameContext { .. } => {
                let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
                Self::Name { center: address.clone(), host: host.to_owned() }
            }
            _ => error.into(),
        }
    }
}

fn shown(at: i64) -> String {
    jiff::Timestamp::from_second(at).map(|at| at.to_string()).unwrap_or_default()
}
