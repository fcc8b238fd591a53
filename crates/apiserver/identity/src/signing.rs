//! Certificates for others: what a signing request asks for, and the certificate that answers it.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{
    Certificate, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SubjectPublicKeyInfo,
};
use rustls::pki_types::{CertificateSigningRequestDer, pem::PemObject};
use x509_parser::prelude::FromDer;

use super::{
    Error,
    pki::Pki,
    subject::Subject,
    user::{ITSELF, MASTERS},
};

/// Clocks of clients may be this much behind.
const BACKDATE: i64 = 5 * 60;

/// A signing request whose signature was checked.
pub struct Request {
    subject: Subject,
    params: CertificateParams,
    key: SubjectPublicKeyInfo,
}

impl Request {
    /// From `spec.request`: base64 of PEM.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::of_pem(&STANDARD.decode(text).map_err(|e| e.to_string())?)
    }

    pub fn of_pem(pem: &[u8]) -> Result<Self, String> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem).map_err(|e| e.to_string())?;
        let params = CertificateSigningRequestParams::from_der(&der).map_err(|e| e.to_string())?.params;
        let (_, parsed) =
            x509_parser::certification_request::X509CertificationRequest::from_der(&der).map_err(|e| e.to_string())?;
        let key = SubjectPublicKeyInfo::from_der(parsed.certification_request_info.subject_pki.raw)
            .map_err(|e| e.to_string())?;
        let subject = Subject::read(&parsed.certification_request_info.subject)?;
        Ok(Self { subject, params, key })
    }

    /// All of them: each becomes a group.
    pub fn organizations(&self) -> Vec<String> {
        self.subject.organizations()
    }

    pub fn common_name(&self) -> String {
        self.subject.common_name().to_owned()
    }

    fn names(&self) -> (usize, usize) {
        let hosts = |name: &&SanType| matches!(name, SanType::DnsName(_) | SanType::IpAddress(_));
        let all = &self.params.subject_alt_names;
        let of_hosts = all.iter().filter(hosts).count();
        (of_hosts, all.len() - of_hosts)
    }

    /// Whether this signer gives such a certificate; why not, in upstream's words.
    pub fn is_for(&self, signer: &str, usages: &[&str]) -> Result<(), String> {
        let allowed =
            |list: &[&str], needed: &str| usages.iter().all(|usage| list.contains(usage)) && usages.contains(&needed);
        match signer {
            CLIENT => {
                // Servers behind this one believe such a client whatever it says of its users.
                let name = self.common_name();
                if name == "front-proxy-client" || name == ITSELF {
                    return Err(format!("the name {name} is reserved"));
                }
                if self.organizations().iter().any(|group| group == MASTERS) {
                    return Err(format!("the group {MASTERS} is not given away by certificates"));
                }
                if !allowed(&["digital signature", "key encipherment", "client auth"], "client auth") {
                    let usages = usages.join(" ");
                    return Err(format!("invalid usages for client certificate: [{usages}]"));
                }
                Ok(())
            }
            EDGE => self.is_edge(usages),
            KUBELET_CLIENT => self.is_kubelet("client auth", usages),
            KUBELET_SERVING => self.is_kubelet("server auth", usages),
            _ => Err(format!("unrecognized signerName: {signer:?}")),
        }
    }

    /// An edge's agent: its name and group, nothing else, and only as a client.
    fn is_edge(&self, usages: &[&str]) -> Result<(), String> {
        let common_name = self.common_name();
        let refuse = |why: &str| Err(why.to_owned());
        if self.organizations() != [EDGES] {
            return refuse("subject organization is not system:edges");
        }
        if edge_of(&common_name).is_none() {
            return refuse("subject common name is not system:edge:<workspace>:<name of a SyncTarget>");
        }
        if self.names() != (0, 0) {
            return refuse("subjectAltNames are not allowed");
        }
        let mut asked: Vec<&str> = usages.iter().copied().filter(|usage| *usage != "key encipherment").collect();
        asked.sort_unstable();
        if asked != ["client auth", "digital signature"] {
            return refuse("usages did not match");
        }
        Ok(())
    }

    fn is_kubelet(&self, purpose: &str, usages: &[&str]) -> Result<(), String> {
        let refuse = |why: &str| Err(why.to_owned());
        if self.organizations() != ["system:nodes"] {
            return refuse("subject organization is not system:nodes");
        }
        if !self.common_name().starts_with("system:node:") {
            return refuse("subject common name does not begin with system:node:");
        }
        match (purpose, self.names()) {
            ("server auth", (0, _)) => return refuse("DNS or IP subjectAltName is required"),
            ("server auth", (_, others)) if others > 0 => {
                return refuse("Email and URI subjectAltNames are not allowed");
            }
            ("client auth", names) if names != (0, 0) => return refuse("subjectAltNames are not allowed"),
            _ => {}
        }
        let mut asked: Vec<&str> = usages.iter().copied().filter(|usage| *usage != "key encipherment").collect();
        asked.sort_unstable();
        if asked
            != if purpose == "client auth" {
                ["client auth", "digital signature"]
            } else {
                ["digital signature", "server auth"]
            }
        {
            return refuse("usages did not match");
        }
        Ok(())
    }
}

pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Ours, for the agents of edges.
pub const EDGE: &str = "edge.selvedge.dev/agent";
pub const EDGES: &str = "system:edges";
pub const EDGE_PREFIX: &str = "system:edge:";
/// The collection of what edges are known by.
pub const SYNCTARGETS: &str = "workload.kcp.io/synctargets";
/// What an edge's certificate is for.
pub const EDGE_USAGES: [&str; 2] = ["digital signature", "client auth"];
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Where upstream puts a user's uid into a certificate's subject.
pub const UID: [u64; 8] = [1, 3, 6, 1, 4, 1, 57683, 2];

/// The workspace and the name of the edge whose user name this is.
pub fn edge_of(user: &str) -> Option<(&str, &str)> {
    let (workspace, name) = user.strip_prefix(EDGE_PREFIX)?.rsplit_once(':')?;
    let is_one = workspace != "*" && request::is_cluster(workspace);
    (is_one && schema::names::dns1123_subdomain(name).is_empty()).then_some((workspace, name))
}

impl Pki {
    /// The certificate that answers a request, in PEM. It lasts `seconds` from `now`, but not longer than the authority.
    pub fn sign(&self, request: &Request, usages: &[&str], seconds: i64, now: i64) -> Result<String, Error> {
        let names = request.params.subject_alt_names.clone();
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, request.common_name());
        let certificate = self.sign_key(&request.key, name, names, usages, (now, seconds))?;
        request.subject.put_into(certificate.der(), &KeyPair::from_pem(&self.authority().key)?)
    }

    /// A certificate for the agent of an edge, whatever else the request says. The uid is that of the edge's credential.
    pub fn sign_edge(&self, request: &Request, user: &str, uid: &str, seconds: i64, now: i64) -> Result<String, Error> {
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, user);
        name.push(DnType::OrganizationName, EDGES);
        name.push(DnType::CustomDnType(UID.to_vec()), uid);
        Ok(self.sign_key(&request.key, name, Vec::new(), &EDGE_USAGES, (now, seconds))?.pem())
    }

    fn sign_key(
        &self,
        key: &SubjectPublicKeyInfo,
        name: DistinguishedName,
        names: Vec<SanType>,
        usages: &[&str],
        (now, seconds): (i64, i64),
    ) -> Result<Certificate, Error> {
        let ca = self.authority();
        let issuer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = name;
        params.subject_alt_names = names;
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = usages.iter().filter_map(|usage| key_usage(usage)).collect();
        params.extended_key_usages = usages.iter().filter_map(|usage| extended_usage(usage)).collect();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let time = |at: i64| epoch + Duration::from_secs(u64::try_from(at).unwrap_or_default());
        params.not_before = time(now - BACKDATE);
        params.not_after = time((now + seconds).min(self.authority_ends().unwrap_or(i64::MAX)));
        Ok(params.signed_by(key, &issuer)?)
    }
}

fn key_usage(usage: &str) -> Option<KeyUsagePurpose> {
    Some(match usage {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        _ => return None,
    })
}

fn extended_usage(usage: &str) -> Option<ExtendedKeyUsagePurpose> {
    Some(match usage {
        "server auth" => ExtendedKeyUsagePurpose::ServerAuth,
        "client auth" => ExtendedKeyUsagePurpose::ClientAuth,
        "code signing" => ExtendedKeyUsagePurpose::CodeSigning,
        "email protection" => ExtendedKeyUsagePurpose::EmailProtection,
        "timestamping" => ExtendedKeyUsagePurpose::TimeStamping,
        "ocsp signing" => ExtendedKeyUsagePurpose::OcspSigning,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn request(name: &str, group: &str, hosts: &[&str]) -> String {
        let mut params = CertificateParams::new(hosts.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
        STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap())
    }

    #[test]
    fn who_gets_what() {
        let (client, serving) = (["digital signature", "client auth"], ["digital signature", "server auth"]);
        for (name, group, hosts, signer, usages, expected) in [
            ("jane", "devs", &[][..], CLIENT, &client[..], Ok(())),
            (
                "jane",
                "devs",
                &[],
                CLIENT,
                &serving,
                Err("invalid usages for client certificate: [digital signature server auth]"),
            ),
            ("boss", MASTERS, &[], CLIENT, &client, Err("the group system:masters is not given away by certificates")),
            (ITSELF, "devs", &[], CLIENT, &client, Err("the name system:apiserver is reserved")),
            ("system:node:a", "system:nodes", &[], KUBELET_CLIENT, &client, Ok(())),
            ("system:node:a", "devs", &[], KUBELET_CLIENT, &client, Err("subject organization is not system:nodes")),
            (
                "a",
                "system:nodes",
                &[],
                KUBELET_CLIENT,
                &client,
                Err("subject common name does not begin with system:node:"),
            ),
            (
                "system:node:a",
                "system:nodes",
                &["a.example"],
                KUBELET_CLIENT,
                &client,
                Err("subjectAltNames are not allowed"),
            ),
            ("system:node:a", "system:nodes", &["a.example", "10.0.0.1"], KUBELET_SERVING, &serving, Ok(())),
            (
                "system:node:a",
                "system:nodes",
                &[],
                KUBELET_SERVING,
                &serving,
                Err("DNS or IP subjectAltName is required"),
            ),
            ("system:node:a", "system:nodes", &["a.example"], KUBELET_SERVING, &client, Err("usages did not match")),
            ("system:edge:root:org:shop-1", EDGES, &[], EDGE, &client, Ok(())),
            (
                "system:edge:root:org:shop-1",
                "devs",
                &[],
                EDGE,
                &client,
                Err("subject organization is not system:edges"),
            ),
            ("system:edge:root:org:shop-1", EDGES, &["shop"], EDGE, &client, Err("subjectAltNames are not allowed")),
            ("system:edge:root:org:shop-1", EDGES, &[], EDGE, &serving, Err("usages did not match")),
            (
                "system:edge:root:Shop",
                EDGES,
                &[],
                EDGE,
                &client,
                Err("subject common name is not system:edge:<workspace>:<name of a SyncTarget>"),
            ),
            (
                "system:node:a",
                EDGES,
                &[],
                EDGE,
                &client,
                Err("subject common name is not system:edge:<workspace>:<name of a SyncTarget>"),
            ),
        ] {
            let got = Request::parse(&request(name, group, hosts)).unwrap().is_for(signer, usages);
            assert_eq!(got, expected.map_err(str::to_owned), "{name} {group} {signer}");
        }
        for bad in [
            "",
            "!",
            "eA==",
            &STANDARD.encode("-----BEGIN CERTIFICATE REQUEST-----\neA==\n-----END CERTIFICATE REQUEST-----"),
        ] {
            assert!(Request::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_signed_names_its_holder_until_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open(dir.path(), &[], super::super::options::Lifetimes::default(), NOW).unwrap();
        let asked = Request::parse(&request("jane", "devs", &[])).unwrap();
        let pem = pki.sign(&asked, &["digital signature", "client auth"], 3600, NOW).unwrap();
        let der = rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let user = super::super::authenticate::certificate_user(&der).unwrap();
        assert_eq!((user.name.as_str(), user.is_in("devs")), ("jane", true));
        let trusted = pki.clients().unwrap();
        let at = rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(NOW as u64));
        assert!(trusted.verify_client_cert(&der, &[], at).is_ok(), "it is signed by the authority");
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert_eq!(certificate.validity().not_after.timestamp(), NOW + 3600);
        assert_eq!(certificate.validity().not_before.timestamp(), NOW - BACKDATE);
        assert!(!certificate.is_ca());
        let long = pki.sign(&asked, &["client auth"], 100 * 365 * 24 * 3600, NOW).unwrap();
        let der = rustls::pki_types::CertificateDer::from_pem_slice(long.as_bytes()).unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert_eq!(Some(certificate.validity().not_after.timestamp()), pki.authority_ends());
    }
}
