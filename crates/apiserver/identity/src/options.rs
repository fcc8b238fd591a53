//! What can be chosen about identity when a server is started.

use std::path::PathBuf;

const DAY: i64 = 24 * 60 * 60;

#[derive(Clone, Debug)]
pub struct Options {
    /// Whether requests without credentials are somebody (`system:anonymous`) or refused.
    pub anonymous: bool,
    /// Users with fixed tokens.
    pub token_file: Option<PathBuf>,
    /// The authority of proxies that may speak for users, and which of its certificates are such proxies (none named: all).
    pub proxy_authority: Option<PathBuf>,
    pub proxy_names: Vec<String>,
    /// Who signs the certificates of kubelets. Without it those that this server's authority signed are checked, and no others.
    pub kubelet_authority: Option<PathBuf>,
    pub lifetimes: Lifetimes,
}

/// All in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Of the server's and the administrator's own certificates. They are renewed when a quarter of it is left.
    pub certificate: i64,
    /// Of the certificates of edges' agents, which renew them when a fifth of it is left.
    pub edge: i64,
    /// After this time a new key signs tokens; zero never.
    pub signing_key: i64,
    /// What a token lasts at most, and so how long an old key has to be kept.
    pub token: i64,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { certificate: 2 * 365 * DAY, edge: 365 * DAY, signing_key: 90 * DAY, token: 365 * DAY }
    }
}

impl Lifetimes {
    /// How long before its end a certificate is renewed.
    pub(super) fn renew_before(&self) -> i64 {
        self.certificate / 4
    }

    /// How often what may have to be renewed is looked at, in seconds.
    pub fn look_every(&self) -> u64 {
        u64::try_from(self.certificate / 16).unwrap_or_default().clamp(1, 60)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            anonymous: true,
            token_file: None,
            proxy_authority: None,
            proxy_names: Vec::new(),
            kubelet_authority: None,
            lifetimes: Lifetimes::default(),
        }
    }
}
