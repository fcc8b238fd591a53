//! One typed configuration: defaults, then a file, then the environment, then flags; checked once.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::{
    audit::{AuditConfig, AuditSettings},
    identity::{IdentityConfig, IdentitySettings},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// A file in the data directory. Nothing else to run.
    Sqlite,
    /// An etcd cluster; several centers over one etcd are one center.
    Etcd,
}

/// What flags, environment and file may say. Every field is optional here; [`Config`] has them all.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// A YAML file with these settings (as `selvedge config` prints them).
    #[arg(long, env = "SELVEDGE_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Where everything is kept: the store, certificates, the admin's kubeconfig. [default: .data/center; for an edge .data/edge]
    #[arg(long, env = "SELVEDGE_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address and port of the API. Port 0 picks a free one. [default: 127.0.0.1:6443; for an edge 127.0.0.1:6444]
    #[arg(long, env = "SELVEDGE_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// What everything is kept in.
    #[arg(long, env = "SELVEDGE_STORE", value_enum, help_heading = "Store")]
    pub store: Option<StoreKind>,
    /// With --store etcd: where etcd answers, separated by commas.
    #[arg(long, env = "SELVEDGE_ETCD_ENDPOINTS", value_delimiter = ',', help_heading = "Store")]
    pub etcd_endpoints: Vec<String>,
    /// With --store etcd: what all keys begin with.
    #[arg(long, env = "SELVEDGE_ETCD_PREFIX", help_heading = "Store")]
    pub etcd_prefix: Option<String>,
    /// With --store etcd over https: the certificates (PEM) of those who sign etcd's.
    #[arg(long, env = "SELVEDGE_ETCD_CAFILE", value_name = "FILE", help_heading = "Store")]
    pub etcd_cafile: Option<PathBuf>,
    /// With --store etcd over https: the certificate (PEM) to show to etcd.
    #[arg(long, env = "SELVEDGE_ETCD_CERTFILE", value_name = "FILE", help_heading = "Store")]
    pub etcd_certfile: Option<PathBuf>,
    /// With --store etcd over https: the key (PEM) of that certificate.
    #[arg(long, env = "SELVEDGE_ETCD_KEYFILE", value_name = "FILE", help_heading = "Store")]
    pub etcd_keyfile: Option<PathBuf>,
    /// Further names or addresses under which clients reach this server; they go into its certificate.
    #[arg(long, env = "SELVEDGE_TLS_NAMES", value_delimiter = ',')]
    pub tls_names: Vec<String>,
    /// The keys that seal Secrets in the store; made when it is not there. Centers of one etcd need the same file.
    /// [default: pki/secrets.key in the data directory]
    #[arg(long, env = "SELVEDGE_SECRETS_KEY_FILE", help_heading = "Store")]
    pub secrets_key_file: Option<PathBuf>,
    /// Which resources are sealed in the store: `secrets`, `configmaps`, `widgets.example.com`, or `none`.
    #[arg(long, env = "SELVEDGE_ENCRYPT_RESOURCES", value_delimiter = ',', help_heading = "Store")]
    pub encrypt_resources: Vec<String>,
    /// With --store sqlite: start although writes that were acknowledged are lost, because a file is damaged. To be given once: revisions
    /// then go on far behind the lost ones, and clients list anew.
    #[arg(long, env = "SELVEDGE_ACCEPT_LOST_WRITES", num_args = 0..=1, default_missing_value = "true", help_heading = "Store")]
    #[serde(skip)]
    pub accept_lost_writes: Option<bool>,
    #[command(flatten)]
    pub identity: IdentitySettings,
    /// Admission plugins to switch on besides the usual ones, by upstream's names, separated by commas.
    #[arg(long, env = "SELVEDGE_ENABLE_ADMISSION_PLUGINS", value_delimiter = ',', help_heading = "Admission")]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to switch off, by upstream's names, separated by commas.
    #[arg(long, env = "SELVEDGE_DISABLE_ADMISSION_PLUGINS", value_delimiter = ',', help_heading = "Admission")]
    pub disable_admission_plugins: Vec<String>,
    /// Requests that only read, worked on at one time; more wait for their turn. [default: 4 for each processor]
    #[arg(long, env = "SELVEDGE_MAX_REQUESTS_INFLIGHT", help_heading = "Limits")]
    pub max_requests_inflight: Option<usize>,
    /// The same for requests that write. [default: 16 for each processor]
    #[arg(long, env = "SELVEDGE_MAX_MUTATING_REQUESTS_INFLIGHT", help_heading = "Limits")]
    pub max_mutating_requests_inflight: Option<usize>,
    /// For how many seconds a list that was begun in pages can be continued, and the past be listed. [default: 300]
    #[arg(long, env = "SELVEDGE_COMPACTION_INTERVAL", value_name = "SECONDS")]
    pub compaction_interval: Option<u64>,
    /// Addresses or networks, separated by commas, that webhooks of workspaces other than root may lead to although
    /// they are this machine's own or link-local.
    #[arg(
        long,
        env = "SELVEDGE_WEBHOOK_ALLOW_ADDRESS",
        value_delimiter = ',',
        value_name = "CIDR",
        help_heading = "Admission"
    )]
    pub webhook_allow_address: Vec<String>,
    #[command(flatten)]
    pub audit: AuditSettings,
    /// What is logged: error, warn, info, debug, trace, or per module as in `info,server=debug`.
    #[arg(long, env = "SELVEDGE_LOG")]
    pub log: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    pub store: StoreKind,
    pub etcd_endpoints: Vec<String>,
    pub etcd_prefix: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_cafile: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_certfile: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_keyfile: Option<PathBuf>,
    pub tls_names: Vec<String>,
    pub secrets_key_file: PathBuf,
    pub encrypt_resources: Vec<String>,
    /// Only for one start, so it is in no file.
    #[serde(skip)]
    pub accept_lost_writes: bool,
    pub identity: IdentityConfig,
    pub enable_admission_plugins: Vec<String>,
    pub disable_admission_plugins: Vec<String>,
    pub max_requests_inflight: usize,
    pub max_mutating_requests_inflight: usize,
    pub compaction_interval: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhook_allow_address: Vec<String>,
    pub audit: AuditConfig,
    pub log: String,
}

impl Config {
    pub fn for_center() -> Self {
        let limits = flow::Limits::default();
        Self {
            data_dir: ".data/center".into(),
            listen: ([127, 0, 0, 1], 6443).into(),
            store: StoreKind::Sqlite,
            etcd_endpoints: vec!["http://127.0.0.1:2379".into()],
            etcd_prefix: "/selvedge/".into(),
            etcd_cafile: None,
            etcd_certfile: None,
            etcd_keyfile: None,
            tls_names: Vec::new(),
            // Empty until the data directory is known.
            secrets_key_file: PathBuf::new(),
            encrypt_resources: vec!["secrets".into()],
            accept_lost_writes: false,
            identity: IdentityConfig::default(),
            enable_admission_plugins: Vec::new(),
            disable_admission_plugins: Vec::new(),
            max_requests_inflight: limits.reads,
            max_mutating_requests_inflight: limits.writes,
            compaction_interval: limits.history_age.as_secs(),
            webhook_allow_address: Vec::new(),
            audit: AuditConfig::default(),
            log: "info".into(),
        }
    }

    pub fn for_edge() -> Self {
        Self { data_dir: ".data/edge".into(), listen: ([127, 0, 0, 1], 6444).into(), ..Self::for_center() }
    }

    /// Lays flags and environment over the file, and all of it over the defaults.
    pub fn resolve(settings: Settings, mut config: Self) -> Result<Self> {
        if let Some(path) = &settings.config {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the configuration {}", path.display()))?;
            let file: Settings = yaml_serde::from_str(&text).with_context(|| {
                format!("{} is not a valid configuration (`selvedge config` prints one)", path.display())
            })?;
            config.lay(file);
        }
        config.lay(settings);
        if config.secrets_key_file.as_os_str().is_empty() {
            config.secrets_key_file = config.data_dir.join("pki/secrets.key");
        }
        config.check()?;
        Ok(config)
    }

    pub fn lay(&mut self, over: Settings) {
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(&mut self.data_dir, over.data_dir);
        set(&mut self.listen, over.listen);
        set(&mut self.store, over.store);
        set(&mut self.etcd_endpoints, Some(over.etcd_endpoints).filter(|all| !all.is_empty()));
        set(&mut self.etcd_prefix, over.etcd_prefix);
        set(&mut self.etcd_cafile, over.etcd_cafile.map(Some));
        set(&mut self.etcd_certfile, over.etcd_certfile.map(Some));
        set(&mut self.etcd_keyfile, over.etcd_keyfile.map(Some));
        set(&mut self.tls_names, Some(over.tls_names).filter(|all| !all.is_empty()));
        set(&mut self.secrets_key_file, over.secrets_key_file);
        set(&mut self.encrypt_resources, Some(over.encrypt_resources).filter(|all| !all.is_empty()));
        set(&mut self.accept_lost_writes, over.accept_lost_writes);
        self.identity.lay(over.identity);
        let chosen = |all: Vec<String>| Some(all).filter(|all| !all.is_empty());
        set(&mut self.enable_admission_plugins, chosen(over.enable_admission_plugins));
        set(&mut self.disable_admission_plugins, chosen(over.disable_admission_plugins));
        set(&mut self.max_requests_inflight, over.max_requests_inflight);
        set(&mut self.max_mutating_requests_inflight, over.max_mutating_requests_inflight);
        set(&mut self.compaction_interval, over.compaction_interval);
        set(&mut self.webhook_allow_address, chosen(over.webhook_allow_address));
        self.audit.lay(over.audit);
        set(&mut self.log, over.log);
    }

    /// The steps of admission that are on.
    pub fn plugins(&self) -> Result<server::Plugins> {
        server::Plugins::chosen(&self.enable_admission_plugins, &self.disable_admission_plugins)
            .map_err(anyhow::Error::msg)
    }

    /// What webhooks of tenants may reach besides what everybody may.
    pub fn webhook_addresses(&self) -> Result<Vec<server::Network>> {
        let read = |text: &String| text.parse().map_err(|why| anyhow::anyhow!("--webhook-allow-address: {why}"));
        self.webhook_allow_address.iter().map(read).collect()
    }

    fn check(&self) -> Result<()> {
        self.identity.options()?;
        self.webhook_addresses()?;
        self.plugins()?;
        for endpoint in &self.etcd_endpoints {
            if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
                bail!("etcd endpoint {endpoint:?} has no scheme: write http://{endpoint} or https://{endpoint}");
            }
        }
        if self.store == StoreKind::Etcd && !self.etcd_prefix.ends_with('/') {
            bail!("the etcd prefix {:?} must end with a slash", self.etcd_prefix);
        }
        if self.max_requests_inflight == 0 || self.max_mutating_requests_inflight == 0 {
            bail!("with no requests in flight nothing would ever be answered: allow at least 1");
        }
        if self.compaction_interval == 0 {
            bail!("with --compaction-interval 0 no list could be continued: allow at least 1 second");
        }
        if self.store == StoreKind::Etcd {
            self.check_etcd_tls()?;
        }
        if let Some(odd) = self.encrypt_resources.iter().find(|name| name.is_empty() || name.contains(['/', '*'])) {
            bail!("{odd:?} is no resource to encrypt: write its plural name, as in secrets or widgets.example.com");
        }
        Ok(())
    }

    fn check_etcd_tls(&self) -> Result<()> {
        let over_tls = self.etcd_endpoints.iter().filter(|endpoint| endpoint.starts_with("https://")).count();
        let files = [&self.etcd_cafile, &self.etcd_certfile, &self.etcd_keyfile];
        if over_tls > 0 && over_tls < self.etcd_endpoints.len() {
            bail!("either all etcd endpoints are https:// or none is");
        }
        if over_tls == 0 && files.iter().any(|file| file.is_some()) {
            bail!("there are certificates for etcd, but its endpoints are http://: write https:// to use them");
        }
        if over_tls > 0 && self.etcd_cafile.is_none() {
            bail!("etcd is to be reached over https: name who signs its certificate with --etcd-cafile");
        }
        if self.etcd_certfile.is_some() != self.etcd_keyfile.is_some() {
            bail!("--etcd-certfile and --etcd-keyfile belong together: one is missing");
        }
        Ok(())
    }

    /// What TLS to etcd needs, read from its files.
    pub fn etcd_tls(&self) -> Result<Option<store::EtcdTls>> {
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let Some(ca) = &self.etcd_cafile else { return Ok(None) };
        let identity = match (&self.etcd_certfile, &self.etcd_keyfile) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        Ok(Some(store::EtcdTls { ca: read(ca)?, identity, server_name: None }))
    }

    /// What the keys of the resources to encrypt begin with. With them go the private keys that centers of one store share.
    pub fn encrypted_prefixes(&self) -> Vec<String> {
        let named = self.encrypt_resources.iter().filter(|name| *name != "none");
        let mut prefixes: Vec<String> = named
            .map(|name| {
                let (resource, group) = name.split_once('.').unwrap_or((name, ""));
                server::store_prefix(group, resource)
            })
            .collect();
        if !prefixes.is_empty() {
            prefixes.push(format!("{}/", identity::SHARED_FILES));
        }
        prefixes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.yaml");
        std::fs::write(&path, "listen: 127.0.0.1:7000\nlog: debug\n").unwrap();
        let flags = Settings { config: Some(path), log: Some("trace".into()), ..Settings::default() };
        let config = Config::resolve(flags, Config::for_center()).unwrap();
        assert_eq!((config.listen.port(), config.log.as_str(), config.store), (7000, "trace", StoreKind::Sqlite));
    }

    #[test]
    fn a_wrong_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.yaml");
        std::fs::write(&path, "lisen: 127.0.0.1:7000\n").unwrap();
        let error =
            Config::resolve(Settings { config: Some(path), ..Settings::default() }, Config::for_center()).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("c.yaml") && text.contains("lisen"), "{text}");
    }

    #[test]
    fn etcd_over_tls() {
        let check = |endpoint: &str, ca: bool, certificate: bool, key: bool| {
            let file = |there: bool| there.then(|| PathBuf::from("f"));
            let flags = Settings {
                store: Some(StoreKind::Etcd),
                etcd_endpoints: vec![endpoint.into()],
                etcd_cafile: file(ca),
                etcd_certfile: file(certificate),
                etcd_keyfile: file(key),
                ..Settings::default()
            };
            Config::resolve(flags, Config::for_center()).map_err(|error| error.to_string())
        };
        assert!(check("http://e", false, false, false).is_ok() && check("https://e", true, true, true).is_ok());
        assert!(check("https://e", true, false, false).is_ok());
        for (endpoint, ca, certificate, key, says) in [
            ("https://e", false, false, false, "--etcd-cafile"),
            ("http://e", true, false, false, "write https://"),
            ("https://e", true, true, false, "belong together"),
        ] {
            let error = check(endpoint, ca, certificate, key).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let printed = yaml_serde::to_string(&Config::for_center()).unwrap();
        let read: Settings = yaml_serde::from_str(&printed).unwrap();
        assert_eq!(read.etcd_prefix.as_deref(), Some("/selvedge/"));
    }

    #[test]
    fn resources_are_sealed_by_where_they_lie() {
        let of = |names: &[&str]| {
            let encrypt_resources = names.iter().map(|name| (*name).to_owned()).collect();
            Config::resolve(Settings { encrypt_resources, ..Settings::default() }, Config::for_center())
        };
        assert_eq!(of(&[]).unwrap().encrypted_prefixes(), ["core/secrets/", "identity.selvedge.dev/_files/"]);
        assert_eq!(of(&["none"]).unwrap().encrypted_prefixes(), [""; 0]);
        let two = of(&["configmaps", "widgets.example.com"]).unwrap();
        assert_eq!(
            two.encrypted_prefixes(),
            ["core/configmaps/", "example.com/widgets/", "identity.selvedge.dev/_files/"]
        );
        assert_eq!(two.secrets_key_file, PathBuf::from(".data/center/pki/secrets.key"));
        assert!(of(&["*"]).unwrap_err().to_string().contains("plural name"));
    }
}
