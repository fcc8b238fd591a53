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
    #[error(
        "{center} is no center's address: what answers there is the API of an edge, or another Kubernetes API (it \
         says: {said}). Edges join centers: name the center's address with --center"
    )]
    NotACenter { center: String, said: String },
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

/// The same for an edge that has joined: what the center's time is, it can only guess from the certificate.
pub(super) fn of_session(error: transport::Error, here: i64) -> transport::Error {
    use rustls::{CertificateError as Why, Error::InvalidCertificate};
    let transport::Error::Tls { error: InvalidCertificate(why), .. } = &error else { return error };
    let seconds = |at: &rustls::pki_types::UnixTime| i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    let valid = match why {
        Why::ExpiredContext { not_after, .. } => format!("only until {}", shown(seconds(not_after))),
        Why::NotValidYetContext { not_before, .. } => format!("only from {} on", shown(seconds(not_before))),
        Why::Expired => "no longer".to_owned(),
        Why::NotValidYet => "not yet".to_owned(),
        _ => return error,
    };
    let message = format!(
        "the clocks disagree: it is {} here, and the center's certificate is valid {valid}; set the clock of this \
         machine. If it is right, set the center's and start the center again, which renews its certificate",
        shown(here)
    );
    transport::Error::Refused { code: transport::Code(CLOCK), message, retry_after: None }
}

/// As some servers number a certificate that is not valid.
const CLOCK: u16 = 526;

fn shown(at: i64) -> String {
    jiff::Timestamp::from_second(at).map(|at| at.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::{CertificateError, pki_types::UnixTime};

    use super::*;

    #[test]
    fn a_wrong_clock_is_named() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let tls = |why| transport::Error::Tls { address: "c:1".into(), error: rustls::Error::InvalidCertificate(why) };
        let late = CertificateError::ExpiredContext { time: at(1_857_984_233), not_after: at(1_800_000_000) };
        let said = of_session(tls(late), 1_857_984_233).to_string();
        assert!(said.starts_with("the clocks disagree: it is 2028-11-16T"), "{said}");
        assert!(said.contains("only until 2027-01-15T") && !said.contains("UNIX"), "{said}");
        let early = CertificateError::NotValidYetContext { time: at(5), not_before: at(1_800_000_000) };
        assert!(of_session(tls(early), 5).to_string().contains("only from 2027-01-15T"));
        let other = of_session(tls(CertificateError::UnknownIssuer), 5);
        assert!(matches!(other, transport::Error::Tls { .. }), "{other}");
    }
}
