//! Real handshakes, in memory: which peers are accepted, and that no forged signature is.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, Error, HandshakeKind, ProtocolVersion, ServerConfig,
    ServerConnection, SignatureAlgorithm,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    server::{ClientHello, ResolvesServerCert},
    sign::{CertifiedKey, SingleCertAndKey},
};
use selvedge_tls::{
    Client, Clients, Fingerprint, HTTP1, HTTP2, Identity, Server, Trust, client_verifier, narrow_provider, provider,
    roots, with_alpn,
};

struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        identity(params.signed_by(&key, &self.issuer).unwrap().der().clone(), &key)
    }

    fn roots(&self) -> Arc<rustls::RootCertStore> {
        roots([self.certificate.clone()]).unwrap()
    }
}

fn identity(certificate: CertificateDer<'static>, key: &KeyPair) -> Identity {
    Identity { chain: vec![certificate], key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
}

fn self_signed(name: &str, is_authority: bool, ended: bool) -> Identity {
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "self");
    if is_authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    if ended {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    identity(params.self_signed(&key).unwrap().der().clone(), &key)
}

fn shown(identity: &Identity) -> Arc<dyn ResolvesServerCert> {
    Arc::new(SingleCertAndKey::from(identity.certified().unwrap()))
}

/// The certificate of one and the key of another.
#[derive(Debug)]
struct Forged(Arc<CertifiedKey>);

impl Forged {
    fn new(certificate: &Identity, key: &Identity) -> Self {
        let signing = provider().key_provider.load_private_key(key.key.clone_key()).unwrap();
        Self(Arc::new(CertifiedKey::new(certificate.chain.clone(), signing)))
    }
}

impl ResolvesServerCert for Forged {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

impl rustls::client::ResolvesClientCert for Forged {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        assert_eq!(self.0.key.algorithm(), SignatureAlgorithm::ECDSA);
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Both ends after the handshake, or the first error of either.
fn connect(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    name: &str,
) -> Result<(ClientConnection, ServerConnection), Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = ClientConnection::new(client.clone(), name)?;
    let server = ServerConnection::new(server.clone())?;
    let (mut client, mut server) = (Connection::from(client), Connection::from(server));
    // Two flights each way, and one for tickets.
    for _ in 0..4 {
        pass(&mut client, &mut server)?;
        pass(&mut server, &mut client)?;
    }
    match (client, server) {
        (Connection::Client(client), Connection::Server(server)) => {
            assert!(!client.is_handshaking() && !server.is_handshaking(), "the handshake did not end");
            Ok((client, server))
        }
        _ => unreachable!(),
    }
}

fn pass(from: &mut Connection, to: &mut Connection) -> Result<(), Error> {
    let mut sent = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut sent).unwrap();
    }
    let mut rest = &sent[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(())
}

fn server_of(certificate: Arc<dyn ResolvesServerCert>) -> Arc<ServerConfig> {
    Arc::new(Server::new(certificate).alpn(&[HTTP2, HTTP1]).build().unwrap())
}

fn old_server_of(certificate: Arc<dyn ResolvesServerCert>) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    Arc::new(builder.with_no_client_auth().with_cert_resolver(certificate))
}

fn client_of(trust: Trust) -> Arc<ClientConfig> {
    Arc::new(Client::new(trust).build().unwrap())
}

fn refusal(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, name: &str) -> Error {
    connect(client, server, name).map(|_| ()).unwrap_err()
}

#[test]
fn roots_accept_what_they_signed_for_the_name() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let server = server_of(shown(&ours.issue("a.example")));
    let client = client_of(Trust::Roots(ours.roots()));
    connect(&client, &server, "a.example").unwrap();
    let wrong = refusal(&client, &server, "b.example");
    assert!(matches!(wrong, Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })), "{wrong:?}");
    let wrong = refusal(&client_of(Trust::Roots(other.roots())), &server, "a.example");
    assert_eq!(wrong, Error::InvalidCertificate(CertificateError::UnknownIssuer));
}

#[test]
fn a_name_can_be_left_out_but_not_the_authority() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let server = server_of(shown(&ours.issue("a.example")));
    connect(&client_of(Trust::RootsForAnyName(ours.roots())), &server, "b.example").unwrap();
    let wrong = refusal(&client_of(Trust::RootsForAnyName(other.roots())), &server, "a.example");
    assert_eq!(wrong, Error::InvalidCertificate(CertificateError::UnknownIssuer));
}

#[test]
fn a_listed_certificate_is_accepted_for_its_name_and_time() {
    let own = self_signed("a.example", true, false);
    let server = server_of(shown(&own));
    let client = client_of(Trust::RootsOrListed(own.chain.clone()));
    connect(&client, &server, "a.example").unwrap();
    let wrong = refusal(&client, &server, "b.example");
    assert!(matches!(wrong, Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })), "{wrong:?}");
    refusal(&client, &server_of(shown(&self_signed("a.example", true, false))), "a.example");
    let ended = self_signed("a.example", true, true);
    let client = client_of(Trust::RootsOrListed(ended.chain.clone()));
    let wrong = refusal(&client, &server_of(shown(&ended)), "a.example");
    assert_eq!(wrong, Error::InvalidCertificate(CertificateError::Expired));
    let ours = Authority::new("ours");
    let client = client_of(Trust::RootsOrListed(vec![ours.certificate.clone()]));
    connect(&client, &server_of(shown(&ours.issue("a.example"))), "a.example").unwrap();
    assert!(Client::new(Trust::RootsOrListed(Vec::new())).build().is_err(), "nothing would be trusted");
}

#[test]
fn those_that_name_the_issuer_are_checked_and_others_accepted() {
    let (ours, impostor) = (Authority::new("ours"), Authority::new("ours"));
    let client = client_of(Trust::RootsIfIssuer(ours.roots()));
    connect(&client, &server_of(shown(&ours.issue("a.example"))), "a.example").unwrap();
    connect(&client, &server_of(shown(&self_signed("x.example", false, true))), "a.example").unwrap();
    refusal(&client, &server_of(shown(&ours.issue("b.example"))), "a.example");
    refusal(&client, &server_of(shown(&impostor.issue("a.example"))), "a.example");
}

#[test]
fn a_pin_accepts_one_certificate() {
    let (one, other) = (self_signed("a.example", false, true), self_signed("a.example", false, false));
    let client = client_of(Trust::Pinned(Fingerprint::of(&one.chain[0])));
    connect(&client, &server_of(shown(&one)), "b.example").unwrap();
    let wrong = refusal(&client, &server_of(shown(&other)), "a.example");
    assert_eq!(wrong, Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure));
}

#[test]
fn no_trust_accepts_a_forged_signature() {
    let ours = Authority::new("ours");
    let (one, other) = (ours.issue("a.example"), ours.issue("a.example"));
    let trusts = [
        Trust::Roots(ours.roots()),
        Trust::RootsForAnyName(ours.roots()),
        Trust::RootsOrListed(vec![ours.certificate.clone()]),
        Trust::RootsIfIssuer(ours.roots()),
        Trust::Pinned(Fingerprint::of(&one.chain[0])),
        Trust::Anyone,
    ];
    for trust in trusts {
        let client = client_of(trust.clone());
        for (server, version) in [
            (server_of as fn(_) -> _, ProtocolVersion::TLSv1_3),
            (old_server_of as fn(_) -> _, ProtocolVersion::TLSv1_2),
        ] {
            let (near, _) = connect(&client, &server(shown(&one)), "a.example").unwrap();
            assert_eq!(near.protocol_version(), Some(version));
            let wrong = refusal(&client, &server(Arc::new(Forged::new(&one, &other))), "a.example");
            assert_eq!(wrong, Error::InvalidCertificate(CertificateError::BadSignature), "{trust:?} {version:?}");
        }
    }
}

#[test]
fn a_client_that_is_asked_may_have_no_certificate_but_must_have_its_key() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let serving = shown(&ours.issue("a.example"));
    let server = Server::new(serving).clients(Clients::Asked(ours.roots())).build().unwrap();
    let server = Arc::new(server);
    let with = |identity: Option<Identity>| {
        Arc::new(Client::new(Trust::Roots(ours.roots())).identity(identity).build().unwrap())
    };
    let (_, far) = connect(&with(None), &server, "a.example").unwrap();
    assert_eq!(far.peer_certificates(), None);
    for issuer in [&ours, &other] {
        let shows = issuer.issue("client");
        let (_, far) = connect(&with(Some(shows.clone())), &server, "a.example").unwrap();
        assert_eq!(far.peer_certificates(), Some(&shows.chain[..]));
        let now = rustls::pki_types::UnixTime::now();
        let verifier = client_verifier(ours.roots()).unwrap();
        let verified = verifier.verify_client_cert(&shows.chain[0], &[], now);
        assert_eq!(verified.is_ok(), std::ptr::eq(issuer, &ours));
    }
    let mut forging = Arc::unwrap_or_clone(with(None));
    forging.client_auth_cert_resolver = Arc::new(Forged::new(&ours.issue("client"), &ours.issue("client")));
    let wrong = refusal(&Arc::new(forging), &server, "a.example");
    assert_eq!(wrong, Error::InvalidCertificate(CertificateError::BadSignature));
}

#[test]
fn a_certificate_can_be_required_of_clients() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let server = Server::new(shown(&ours.issue("a.example"))).clients(Clients::Required(ours.roots()));
    let server = Arc::new(server.build().unwrap());
    let with = |identity: Option<Identity>| {
        Arc::new(Client::new(Trust::Roots(ours.roots())).identity(identity).build().unwrap())
    };
    connect(&with(Some(ours.issue("client"))), &server, "a.example").unwrap();
    assert_eq!(refusal(&with(None), &server, "a.example"), Error::NoCertificatesPresented);
    refusal(&with(Some(other.issue("client"))), &server, "a.example");
}

#[test]
fn protocols_are_agreed_on_and_sessions_resumed_across_them() {
    let ours = Authority::new("ours");
    let server = Server::new(shown(&ours.issue("a.example"))).alpn(&[HTTP2, b"own"]).resumable_sessions(16);
    let server = Arc::new(server.build().unwrap());
    assert_eq!(server.send_tls13_tickets, 1);
    let narrow = Client::new(Trust::Roots(ours.roots())).narrow().alpn(&[HTTP2]).resumable_sessions(2).build().unwrap();
    let suites = &narrow.crypto_provider().cipher_suites;
    assert_eq!(suites.len(), narrow_provider().cipher_suites.len());
    let own = Arc::new(with_alpn(&narrow, &[b"own"]));
    let (near, _) = connect(&Arc::new(narrow), &server, "a.example").unwrap();
    assert_eq!((near.alpn_protocol(), near.handshake_kind()), (Some(HTTP2), Some(HandshakeKind::Full)));
    let (near, _) = connect(&own, &server, "a.example").unwrap();
    assert_eq!((near.alpn_protocol(), near.handshake_kind()), (Some(&b"own"[..]), Some(HandshakeKind::Resumed)));
}
