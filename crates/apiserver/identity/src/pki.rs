//! The server's own certificate authority, what it issues on first start, and its renewal while it runs.
//!
//! Losing the authority or the admin's token would lock clients out, so damage to them is an error. Issued certificates can
//! be made anew at any time, and are: when they near their end, were issued by another authority, or lack a name.
//! `ca-extra.crt` holds further authorities that are trusted and published but sign nothing: with it, one authority can
//! follow another without a day on which somebody trusts neither.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{ClientHello, ResolvesServerCert, danger::ClientCertVerifier},
    sign::CertifiedKey,
};

use super::{
    Error, files,
    front_proxy::FrontProxy,
    options::Lifetimes,
    tls::{AskOnly, certificates_of, client_verifier, roots_of},
};

const DAY: i64 = 24 * 60 * 60;
const CA_DAYS: i64 = 10 * 365;
/// The authority's own certificate is renewed when less than this is left.
const CA_RENEW_DAYS: i64 = 365;

pub const ADMIN: &str = "selvedge-admin";
const MASTERS: &str = "system:masters";

/// A certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

pub struct Pki {
    dir: PathBuf,
    ca: Pair,
    /// The authority and what else is trusted.
    bundle: String,
    front_proxy: FrontProxy,
    serving: Arc<Serving>,
    admin: RwLock<Pair>,
    token: String,
    lifetimes: Lifetimes,
    provider: Arc<CryptoProvider>,
}

/// The serving certificate of the moment: connections that begin get it, those that are open keep theirs.
#[derive(Debug)]
struct Serving(RwLock<(Pair, Arc<CertifiedKey>)>);

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).1.clone())
    }
}

/// What a certificate is for.
pub(super) enum Purpose<'a> {
    Serving(&'a [String]),
    Client { name: &'a str, group: &'a str },
}

impl Pki {
    /// Reads what is in `dir`, and makes what is missing or due. `names` are those of the serving certificate, `now` is in
    /// seconds since 1970.
    pub fn open(dir: &Path, names: &[String], lifetimes: Lifetimes, now: i64) -> Result<Self, Error> {
        files::make_dir(dir)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let ca = open_ca(dir, &OWN, now, &provider)?;
        let front_proxy = FrontProxy::open(dir, now, &provider)?;
        let bundle = ca.certificate.clone() + &extra_authorities(dir)?;
        let leaves = Leaves { dir, ca: &ca, lifetimes, provider: &provider, now };
        let serving = leaves.open("serving", &Purpose::Serving(names))?;
        let admin = leaves.open("admin", &ADMINISTRATOR)?;
        let token = open_token(dir)?;
        let certified = Arc::new(certified(&serving, &provider)?);
        let serving = Arc::new(Serving(RwLock::new((serving, certified))));
        let admin = RwLock::new(admin);
        Ok(Self { dir: dir.to_owned(), ca, bundle, front_proxy, serving, admin, token, lifetimes, provider })
    }

    /// Renews what nears its end, and the serving certificate if it lacks one of the names. Answers whether the
    /// administrator's certificate is new.
    pub fn renew(&self, names: &[String], now: i64) -> Result<bool, Error> {
        let (dir, ca, lifetimes, provider) = (&*self.dir, &self.ca, self.lifetimes, &self.provider);
        let leaves = Leaves { dir, ca, lifetimes, provider, now };
        let serving = leaves.open("serving", &Purpose::Serving(names))?;
        if self.serving.0.read().unwrap_or_else(PoisonError::into_inner).0 != serving {
            let certified = Arc::new(certified(&serving, provider)?);
            *self.serving.0.write().unwrap_or_else(PoisonError::into_inner) = (serving, certified);
        }
        let admin = leaves.open("admin", &ADMINISTRATOR)?;
        let mut have = self.admin.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *have != admin;
        *have = admin;
        Ok(is_new)
    }

    /// All authorities that clients should trust; the one that signs comes first.
    pub fn ca_pem(&self) -> &str {
        &self.bundle
    }

    /// The authority itself, to sign with.
    pub(super) fn authority(&self) -> &Pair {
        &self.ca
    }

    /// When the authority ends, in seconds since 1970.
    pub(super) fn authority_ends(&self) -> Option<i64> {
        ends(&self.ca.certificate)
    }

    /// What signs the certificates that this server shows to aggregated API servers.
    pub fn front_proxy(&self) -> &FrontProxy {
        &self.front_proxy
    }

    pub fn admin(&self) -> Pair {
        self.admin.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn provider(&self) -> &Arc<CryptoProvider> {
        &self.provider
    }

    /// Says whether a client's certificate is good.
    pub fn clients(&self) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        Ok(client_verifier(roots_of(certificates_of(&self.bundle)?)?, &self.provider)?)
    }

    /// The admin's bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A certificate for a client of this server; the group may be empty.
    pub fn issue_client(&self, name: &str, group: &str, now: i64) -> Result<Pair, Error> {
        issue(&self.ca, &Purpose::Client { name, group }, self.lifetimes.certificate, now)
    }

    /// TLS for the server: HTTP/2 and 1.1, certificates of clients if they have one. `more` are further authorities whose
    /// certificates are welcome. So many sessions can be resumed; the oldest are forgotten.
    pub fn tls(&self, more: &str, sessions: usize) -> Result<ServerConfig, Error> {
        let known = certificates_of(&format!("{}{more}", self.bundle))?;
        let clients = AskOnly::new(&*roots_of(known)?, &self.provider);
        let mut tls = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(clients))
            .with_cert_resolver(self.serving.clone());
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Edges that come back, thousands at once, resume their sessions: that costs no signatures. They are kept here, about a kilobyte
        // each, rather than in tickets: those carry the client's certificate to and fro, and coming back would cost twice as much on
        // the wire. Whether a certificate is still good is asked for each request.
        tls.session_storage = rustls::server::ServerSessionMemoryCache::new(sessions);
        tls.send_tls13_tickets = 1;
        Ok(tls)
    }
}

/// Authorities that are trusted beside our own.
fn extra_authorities(dir: &Path) -> Result<String, Error> {
    let path = dir.join("ca-extra.crt");
    let pem = files::read(&path)?.unwrap_or_default();
    certificates_of(&pem).map_err(|e| Error::Configuration { path, why: e.to_string() })?;
    Ok(pem)
}

/// What servers share of this directory, made if it is not there: names of files and what is in them.
pub(super) fn found(dir: &Path, now: i64) -> Result<Vec<(String, String)>, Error> {
    files::make_dir(dir)?;
    let ca = open_ca(dir, &OWN, now, &rustls::crypto::aws_lc_rs::default_provider())?;
    let files = [("ca.crt", ca.certificate), ("ca.key", ca.key), ("admin.token", open_token(dir)?)];
    Ok(files.map(|(name, text)| (name.to_owned(), text)).to_vec())
}

/// A certificate authority in two files.
pub(super) struct Authority {
    /// The files' name without its ending.
    pub file: &'static str,
    pub common_name: &'static str,
    /// What is lost with it.
    pub loss: &'static str,
}

const OWN: Authority = Authority {
    file: "ca",
    common_name: "selvedge-ca",
    loss: "together with the other ca file; clients will then need a new kubeconfig",
};

pub(super) fn open_ca(dir: &Path, authority: &Authority, now: i64, provider: &CryptoProvider) -> Result<Pair, Error> {
    let Authority { file, common_name, loss } = *authority;
    let (certificate_path, key_path) = (dir.join(format!("{file}.crt")), dir.join(format!("{file}.key")));
    let damaged = |path: &Path, why: String| Error::Damaged { path: path.to_owned(), why, loss };
    let ca_params = |now| ca_params(common_name, now);
    let pair = match (files::read(&certificate_path)?, files::read(&key_path)?) {
        (Some(certificate), Some(key)) => Pair { certificate, key },
        (None, None) => {
            let key = KeyPair::generate()?;
            let certificate = ca_params(now)?.self_signed(&key)?.pem();
            let pair = Pair { certificate, key: key.serialize_pem() };
            // The key first: a certificate without its key would look like damage.
            files::write(&key_path, pair.key.as_bytes())?;
            files::write(&certificate_path, pair.certificate.as_bytes())?;
            return Ok(pair);
        }
        // A crash between the two writes of the first start.
        (None, Some(key)) => {
            let pair_key = KeyPair::from_pem(&key).map_err(|e| damaged(&key_path, e.to_string()))?;
            let certificate = ca_params(now)?.self_signed(&pair_key)?.pem();
            files::write(&certificate_path, certificate.as_bytes())?;
            return Ok(Pair { certificate, key });
        }
        (Some(_), None) => return Err(damaged(&key_path, "it is missing although there is a certificate".to_owned())),
    };
    let key = KeyPair::from_pem(&pair.key).map_err(|e| damaged(&key_path, e.to_string()))?;
    certified(&pair, provider).map_err(|e| damaged(&certificate_path, e.to_string()))?;
    if ends(&pair.certificate).is_some_and(|end| end - now > CA_RENEW_DAYS * DAY) {
        return Ok(pair);
    }
    // The same key under the same name: what was issued stays valid, and so do the copies that clients have.
    let certificate = ca_params(now)?.self_signed(&key)?.pem();
    files::write(&certificate_path, certificate.as_bytes())?;
    tracing::info!(common_name, "renewed the certificate authority's own certificate");
    Ok(Pair { certificate, ..pair })
}

const ADMINISTRATOR: Purpose<'static> = Purpose::Client { name: ADMIN, group: MASTERS };

/// What is issued for the server's own use.
struct Leaves<'a> {
    dir: &'a Path,
    ca: &'a Pair,
    lifetimes: Lifetimes,
    provider: &'a Arc<CryptoProvider>,
    now: i64,
}

impl Leaves<'_> {
    /// The certificate in that file, or a new one if it is not good for long enough.
    fn open(&self, file: &str, purpose: &Purpose<'_>) -> Result<Pair, Error> {
        let (certificate_path, key_path) = (self.dir.join(format!("{file}.crt")), self.dir.join(format!("{file}.key")));
        if let (Some(certificate), Some(key)) = (files::read(&certificate_path)?, files::read(&key_path)?) {
            let pair = Pair { certificate, key };
            match is_good(&pair, self.ca, purpose, self.now + self.lifetimes.renew_before(), self.provider) {
                Ok(()) => return Ok(pair),
                Err(why) => tracing::info!(%why, "making a new {file} certificate"),
            }
        }
        let pair = issue(self.ca, purpose, self.lifetimes.certificate, self.now)?;
        files::write_disposable(&key_path, pair.key.as_bytes())?;
        files::write_disposable(&certificate_path, pair.certificate.as_bytes())?;
        Ok(pair)
    }
}

/// Whether a certificate belongs to its key, and clients or the server would accept it at that time.
fn is_good(
    pair: &Pair,
    ca: &Pair,
    purpose: &Purpose<'_>,
    at: i64,
    provider: &Arc<CryptoProvider>,
) -> Result<(), Error> {
    let key = certified(pair, provider)?;
    let certificate = key.end_entity_cert()?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at).unwrap_or_default()));
    match purpose {
        Purpose::Client { .. } => {
            let verifier = client_verifier(roots(ca)?, provider)?;
            verifier.verify_client_cert(certificate, &[], at)?;
        }
        Purpose::Serving(names) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots(ca)?, provider.clone())
                .build()
                .map_err(|e| rustls::Error::General(e.to_string()))?;
            for name in names.iter().filter_map(|name| ServerName::try_from(name.as_str()).ok()) {
                verifier.verify_server_cert(certificate, &[], &name, &[], at)?;
            }
        }
    }
    Ok(())
}

fn open_token(dir: &Path) -> Result<String, Error> {
    let path = dir.join("admin.token");
    if let Some(text) = files::read(&path)? {
        let token = text.trim();
        if token.len() >= 32 && token.bytes().all(|b| b.is_ascii_graphic()) {
            return Ok(token.to_owned());
        }
        let loss = "which whoever uses the old one then needs";
        return Err(Error::Damaged { path, why: "it holds no token".to_owned(), loss });
    }
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    files::write(&path, token.as_bytes())?;
    Ok(token)
}

fn params(now: i64, seconds: i64) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let time = |at: i64| epoch + Duration::from_secs(u64::try_from(at).unwrap_or_default());
    // A day before now leaves room for clocks that are behind.
    params.not_before = time(now - DAY);
    params.not_after = time(now + seconds);
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

fn ca_params(common_name: &str, now: i64) -> Result<CertificateParams, Error> {
    let mut params = params(now, CA_DAYS * DAY)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

pub(super) fn issue(ca: &Pair, purpose: &Purpose<'_>, seconds: i64, now: i64) -> Result<Pair, Error> {
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
    let mut params = params(now, seconds)?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    match purpose {
        Purpose::Serving(names) => {
            params.subject_alt_names = CertificateParams::new(names.to_vec())?.subject_alt_names;
            params.distinguished_name.push(DnType::CommonName, "selvedge");
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
        Purpose::Client { name, group } => {
            params.distinguished_name.push(DnType::CommonName, *name);
            if !group.is_empty() {
                params.distinguished_name.push(DnType::OrganizationName, *group);
            }
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        }
    }
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

fn certificate_of(pem: &str) -> Result<CertificateDer<'static>, rustls::Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| rustls::Error::General(e.to_string()))
}

/// Checks that certificate and key belong together.
fn certified(pair: &Pair, provider: &CryptoProvider) -> Result<CertifiedKey, rustls::Error> {
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|e| rustls::Error::General(e.to_string()))?;
    CertifiedKey::from_der(vec![certificate_of(&pair.certificate)?], key, provider)
}

fn roots(ca: &Pair) -> Result<Arc<RootCertStore>, rustls::Error> {
    roots_of(vec![certificate_of(&ca.certificate)?])
}

/// When a certificate ends, in seconds since 1970.
pub fn ends(pem: &str) -> Option<i64> {
    ends_der(&certificate_of(pem).ok()?)
}

/// When a certificate ends.
pub fn ends_der(der: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// The names a server can be reached by: those every cluster has, where it listens, what the machine is called, and more
/// if wanted.
pub fn serving_names(listen: IpAddr, hostname: Option<&str>, extra: &[String]) -> Vec<String> {
    let fixed = [
        "localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut names: Vec<String> = fixed.map(str::to_owned).to_vec();
    if !listen.is_unspecified() {
        names.push(listen.to_string());
    }
    names.extend(hostname.map(str::to_owned));
    names.extend_from_slice(extra);
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| ServerName::try_from(name.as_str()).is_ok() && seen.insert(name.clone()));
    names
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn names() -> Vec<String> {
        serving_names("10.1.2.3".parse().unwrap(), Some("host-a"), &["edge.example.com".to_owned()])
    }

    fn serving(pki: &Pki) -> Pair {
        pki.serving.0.read().unwrap().0.clone()
    }

    #[test]
    fn renewed_while_it_runs() {
        let dir = tempfile::tempdir().unwrap();
        let lifetimes = Lifetimes { certificate: 100, ..Lifetimes::default() };
        let pki = Pki::open(dir.path(), &names(), lifetimes, NOW).unwrap();
        let (first, admin) = (serving(&pki), pki.admin());
        let shown = |pki: &Pki| pki.serving.0.read().unwrap().1.cert[0].clone();
        let before = shown(&pki);
        assert!(!pki.renew(&names(), NOW + 70).unwrap());
        assert_eq!((serving(&pki), shown(&pki)), (first.clone(), before.clone()));
        let more = [names(), vec!["other.example.com".to_owned()]].concat();
        assert!(!pki.renew(&more, NOW + 70).unwrap(), "only the server's names have changed");
        assert_ne!((serving(&pki), shown(&pki)), (first, before.clone()));
        assert!(pki.renew(&more, NOW + 80).unwrap());
        assert_ne!(pki.admin(), admin);
        assert_ne!(shown(&pki), before);
    }

    #[test]
    fn further_authorities_are_trusted_and_sign_nothing() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let before = Pki::open(old.path(), &names(), Lifetimes::default(), NOW).unwrap();
        files::make_dir(new.path()).unwrap();
        fs::write(new.path().join("ca-extra.crt"), before.ca_pem()).unwrap();
        let after = Pki::open(new.path(), &names(), Lifetimes::default(), NOW).unwrap();
        assert!(after.ca_pem().starts_with(&after.ca.certificate) && after.ca_pem().ends_with(before.ca_pem()));
        let certificate = certificate_of(&before.admin().certificate).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(NOW as u64));
        after.clients().unwrap().verify_client_cert(&certificate, &[], at).unwrap();
        assert!(
            before
                .clients()
                .unwrap()
                .verify_client_cert(&certificate_of(&after.admin().certificate).unwrap(), &[], at)
                .is_err()
        );
        fs::write(new.path().join("ca-extra.crt"), "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")
            .unwrap();
        let error = Pki::open(new.path(), &names(), Lifetimes::default(), NOW).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("ca-extra.crt"), "{error}");
    }

    #[test]
    fn made_once_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &names(), Lifetimes::default(), NOW).unwrap();
        let second = Pki::open(dir.path(), &names(), Lifetimes::default(), NOW + DAY).unwrap();
        assert_eq!((&first.ca, serving(&first), first.admin()), (&second.ca, serving(&second), second.admin()));
        assert_eq!(first.token(), second.token());
        assert!(first.token().len() >= 32);
        first.tls("", 16).unwrap();
        let admin = certificate_of(&first.admin().certificate).unwrap();
        let user = crate::authenticate::certificate_user(&admin).unwrap();
        assert_eq!((user.name.as_str(), user.groups[0].as_str()), (ADMIN, MASTERS));
    }

    #[test]
    fn issued_certificates_are_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pki::open(dir.path(), &names(), Lifetimes::default(), NOW).unwrap();
        let more = [names(), vec!["other.example.com".to_owned()]].concat();
        let named = Pki::open(dir.path(), &more, Lifetimes::default(), NOW).unwrap();
        assert_ne!(serving(&first), serving(&named), "a name was missing");
        assert_eq!(first.admin(), named.admin());
        let later = Pki::open(dir.path(), &more, Lifetimes::default(), NOW + 548 * DAY).unwrap();
        assert_ne!(serving(&named), serving(&later));
        assert_eq!(first.ca, later.ca);
        let much_later =
            Pki::open(dir.path(), &more, Lifetimes::default(), NOW + (CA_DAYS - CA_RENEW_DAYS + 2) * DAY).unwrap();
        assert_ne!(first.ca.certificate, much_later.ca.certificate);
        assert_eq!(first.ca.key, much_later.ca.key);
        fs::write(dir.path().join("serving.crt"), "nonsense").unwrap();
        Pki::open(dir.path(), &names(), Lifetimes::default(), NOW + (CA_DAYS - CA_RENEW_DAYS + 2) * DAY).unwrap();
    }

    #[test]
    fn damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        Pki::open(dir.path(), &names(), Lifetimes::default(), NOW).unwrap();
        let open = || Pki::open(dir.path(), &names(), Lifetimes::default(), NOW).map(|_| ()).unwrap_err().to_string();
        let key = fs::read(dir.path().join("ca.key")).unwrap();
        fs::write(dir.path().join("ca.key"), "").unwrap();
        assert!(open().contains("ca.key is damaged"), "{}", open());
        fs::remove_file(dir.path().join("ca.key")).unwrap();
        assert!(open().contains("it is missing although"), "{}", open());
        fs::write(dir.path().join("ca.key"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(open().contains("ca.crt is damaged"), "{}", open());
        fs::write(dir.path().join("ca.key"), key).unwrap();
        fs::write(dir.path().join("admin.token"), "\n").unwrap();
        assert!(open().contains("admin.token is damaged"), "{}", open());
    }

    /// Shakes hands in memory; answers the certificate that the server saw.
    fn handshake(
        pki: &Pki,
        name: &str,
        client: Option<&Pair>,
    ) -> Result<Option<CertificateDer<'static>>, rustls::Error> {
        let config = rustls::ClientConfig::builder_with_provider(pki.provider.clone())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(&pki.ca)?);
        let config = match client {
            None => config.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![certificate_of(&pair.certificate)?], key)?
            }
        };
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name)?;
        let mut server = rustls::ServerConnection::new(Arc::new(pki.tls("", 16).unwrap()))?;
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(server.peer_certificates().and_then(|all| all.first().cloned()))
    }

    #[test]
    fn clients_and_server_accept_each_other() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = crate::now();
        let pki = Pki::open(dir.path(), &names(), Lifetimes::default(), now).unwrap();
        let other = Pki::open(elsewhere.path(), &names(), Lifetimes::default(), now).unwrap();
        for name in ["localhost", "127.0.0.1", "10.1.2.3", "host-a", "kubernetes.default.svc", "edge.example.com"] {
            assert_eq!(handshake(&pki, name, None), Ok(None), "{name}");
        }
        assert!(handshake(&pki, "example.com", None).is_err());
        let seen = handshake(&pki, "localhost", Some(&pki.admin())).unwrap().unwrap();
        assert_eq!(crate::authenticate::certificate_user(&seen).unwrap().name, ADMIN);
        let edge = pki.issue_client("system:node:e1", "system:nodes", now).unwrap();
        let seen = handshake(&pki, "localhost", Some(&edge)).unwrap().unwrap();
        let user = crate::authenticate::certificate_user(&seen).unwrap();
        assert_eq!((user.name.as_str(), user.groups[0].as_str()), ("system:node:e1", "system:nodes"));
        // Another authority's client may connect, but nobody vouches for it.
        let seen = handshake(&pki, "localhost", Some(&other.admin())).unwrap().unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(now as u64));
        assert!(pki.clients().unwrap().verify_client_cert(&seen, &[], at).is_err());
        // Nobody can show a certificate without having its key.
        let stolen = Pair { key: other.admin().key, ..pki.admin() };
        assert!(handshake(&pki, "localhost", Some(&stolen)).is_err());
    }
}
