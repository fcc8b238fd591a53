//! The settings of identity, and the commands about keys.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::cli::say;

/// What flags, environment and file may say about who is who.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(next_help_heading = "Identity")]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IdentitySettings {
    /// Whether requests without credentials are taken as system:anonymous or refused. [default: true]
    #[arg(long, env = "SELVEDGE_ANONYMOUS_AUTH", num_args = 0..=1, default_missing_value = "true")]
    pub anonymous_auth: Option<bool>,
    /// Users with fixed tokens: a file of lines `token,user,uid,"group1,group2"`.
    #[arg(long, env = "SELVEDGE_TOKEN_AUTH_FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// The authority of proxies that may say in X-Remote-User, X-Remote-Group and X-Remote-Extra- headers whom they speak
    /// for. Without it these headers mean nothing.
    #[arg(long, env = "SELVEDGE_REQUESTHEADER_CLIENT_CA_FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of such proxies; without any, all certificates of that authority are.
    #[arg(long, env = "SELVEDGE_REQUESTHEADER_ALLOWED_NAMES", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// The authority that signs the certificates of kubelets. Without it, only certificates that this server's authority
    /// signed are checked.
    #[arg(long, env = "SELVEDGE_KUBELET_CERTIFICATE_AUTHORITY")]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// After this time a new key signs ServiceAccount tokens (such as 90d or 12h; 0 never). [default: 90d]
    #[arg(long, env = "SELVEDGE_SERVICE_ACCOUNT_KEY_LIFETIME")]
    pub service_account_key_lifetime: Option<String>,
    /// What a ServiceAccount token lasts at most. [default: 365d]
    #[arg(long, env = "SELVEDGE_SERVICE_ACCOUNT_MAX_TOKEN_EXPIRATION")]
    pub service_account_max_token_expiration: Option<String>,
    /// What the server's own certificates last; they are renewed when a quarter of it is left.
    #[arg(long, env = "SELVEDGE_CERTIFICATE_LIFETIME", hide = true)]
    pub certificate_lifetime: Option<String>,
    /// What the certificate of an edge lasts; the edge renews it when a fifth of it is left. [default: 365d]
    #[arg(long, env = "SELVEDGE_EDGE_CERTIFICATE_LIFETIME")]
    pub edge_certificate_lifetime: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IdentityConfig {
    pub anonymous_auth: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_auth_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    pub requestheader_allowed_names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_certificate_authority: Option<PathBuf>,
    pub service_account_key_lifetime: String,
    pub service_account_max_token_expiration: String,
    pub certificate_lifetime: String,
    pub edge_certificate_lifetime: String,
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self {
            anonymous_auth: true,
            token_auth_file: None,
            requestheader_client_ca_file: None,
            requestheader_allowed_names: Vec::new(),
            kubelet_certificate_authority: None,
            service_account_key_lifetime: "90d".into(),
            service_account_max_token_expiration: "365d".into(),
            certificate_lifetime: "730d".into(),
            edge_certificate_lifetime: "365d".into(),
        }
    }
}

impl IdentityConfig {
    pub fn lay(&mut self, over: IdentitySettings) {
        self.anonymous_auth = over.anonymous_auth.unwrap_or(self.anonymous_auth);
        self.token_auth_file = over.token_auth_file.or(self.token_auth_file.take());
        self.requestheader_client_ca_file =
            over.requestheader_client_ca_file.or(self.requestheader_client_ca_file.take());
        self.kubelet_certificate_authority =
            over.kubelet_certificate_authority.or(self.kubelet_certificate_authority.take());
        if !over.requestheader_allowed_names.is_empty() {
            self.requestheader_allowed_names = over.requestheader_allowed_names;
        }
        for (field, value) in [
            (&mut self.service_account_key_lifetime, over.service_account_key_lifetime),
            (&mut self.service_account_max_token_expiration, over.service_account_max_token_expiration),
            (&mut self.certificate_lifetime, over.certificate_lifetime),
            (&mut self.edge_certificate_lifetime, over.edge_certificate_lifetime),
        ] {
            *field = value.unwrap_or_else(|| std::mem::take(field));
        }
    }

    pub fn options(&self) -> Result<identity::Options> {
        let time = |name: &str, text: &str, least: i64| {
            let seconds =
                seconds(text).with_context(|| format!("{name} {text:?} is no time: write 90d, 12h, 30m or 45s"))?;
            if seconds < least {
                bail!("{name} {text:?} is too short: it is at least {least}s");
            }
            Ok(seconds)
        };
        let lifetimes = identity::Lifetimes {
            certificate: time("the lifetime of certificates", &self.certificate_lifetime, 4)?,
            edge: time("the lifetime of edges' certificates", &self.edge_certificate_lifetime, 4)?,
            signing_key: time("the lifetime of ServiceAccount keys", &self.service_account_key_lifetime, 0)?,
            token: time("the longest token", &self.service_account_max_token_expiration, 3600)?,
        };
        Ok(identity::Options {
            anonymous: self.anonymous_auth,
            token_file: self.token_auth_file.clone(),
            proxy_authority: self.requestheader_client_ca_file.clone(),
            proxy_names: self.requestheader_allowed_names.clone(),
            kubelet_authority: self.kubelet_certificate_authority.clone(),
            lifetimes,
        })
    }
}

/// `90d`, `12h`, `30m`, `45s`; a number alone is seconds.
pub fn seconds(text: &str) -> Option<i64> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 'd') => (&text[..at], 24 * 3600),
        (at, 'h') => (&text[..at], 3600),
        (at, 'm') => (&text[..at], 60),
        (at, 's') => (&text[..at], 1),
        _ => (text, 1),
    };
    number.parse::<u32>().ok().map(|number| i64::from(number) * unit)
}

/// The keys that sign ServiceAccount tokens.
#[derive(Subcommand)]
pub enum Keys {
    /// Make a new key; a running center signs with it from then on. Tokens of the old ones stay good.
    Rotate {
        /// Where the center keeps its data.
        #[arg(long, env = "SELVEDGE_DATA_DIR", default_value = ".data/center")]
        data_dir: PathBuf,
    },
    /// List the keys, the newest first.
    List {
        /// Where the center keeps its data.
        #[arg(long, env = "SELVEDGE_DATA_DIR", default_value = ".data/center")]
        data_dir: PathBuf,
    },
}

pub fn run(command: &Keys) -> Result<()> {
    match command {
        Keys::Rotate { data_dir } => {
            let (_, key) = identity::keys::make(&pki(data_dir)?, now())?;
            say(&format!("{}\n", key.id()))
        }
        Keys::List { data_dir } => {
            let keys = identity::keys::list(&pki(data_dir)?)?;
            let line = |(id, made): &(String, i64)| format!("{id}  {}s\n", now() - made);
            say(&keys.iter().map(line).collect::<String>())
        }
    }
}

fn pki(data_dir: &Path) -> Result<PathBuf> {
    let dir = data_dir.join("pki");
    if !dir.is_dir() {
        bail!("there is no {}: start the center first, or name another --data-dir", dir.display());
    }
    Ok(dir)
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, expected) in [
            ("90d", Some(7_776_000)),
            ("12h", Some(43200)),
            ("30m", Some(1800)),
            ("45", Some(45)),
            ("x", None),
            ("", None),
            ("-1d", None),
            ("dd", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        let short = IdentityConfig { certificate_lifetime: "1s".into(), ..IdentityConfig::default() };
        assert!(short.options().unwrap_err().to_string().contains("too short"));
        assert_eq!(IdentityConfig::default().options().unwrap().lifetimes, identity::Lifetimes::default());
    }
}
