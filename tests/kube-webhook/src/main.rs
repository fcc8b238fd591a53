//! An admission webhook as people write them with kube-rs, run by `tests/test_admission.py` against the built binary.
//!
//! `kube-webhook certificates DIR NAME…` makes what webhooks need to be trusted: an authority, a certificate of it for the
//! names, and one that signs itself. `kube-webhook serve DIR` answers over TLS, and prints the port.

use std::{convert::Infallible, fs, io::Write, path::Path, sync::Arc};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use kube_core::{
    DynamicObject, ResourceExt,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::json;
use tokio_rustls::TlsAcceptor;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["certificates", dir, names @ ..] => certificates(Path::new(dir), names),
        ["serve", dir] => serve(Path::new(dir)).await,
        _ => bail!("usage: kube-webhook certificates DIR NAME… | kube-webhook serve DIR"),
    }
}

fn certificates(dir: &Path, names: &[&str]) -> Result<()> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let authority = |names: Vec<String>, called: &str| -> Result<CertificateParams> {
        let mut params = CertificateParams::new(names)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, called);
        Ok(params)
    };
    let key = KeyPair::generate()?;
    let params = authority(Vec::new(), "webhook authority")?;
    fs::write(dir.join("ca.crt"), params.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    fs::write(dir.join("tls.crt"), CertificateParams::new(names.clone())?.signed_by(&key, &issuer)?.pem())?;
    fs::write(dir.join("tls.key"), key.serialize_pem())?;
    // Many webhooks show a certificate that signs itself and says that it is an authority.
    let key = KeyPair::generate()?;
    fs::write(dir.join("self.crt"), authority(names, "itself")?.self_signed(&key)?.pem())?;
    fs::write(dir.join("self.key"), key.serialize_pem())?;
    Ok(())
}

async fn serve(dir: &Path) -> Result<()> {
    let chain = CertificateDer::pem_file_iter(dir.join("tls.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(dir.join("tls.key"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(tls));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?.port())?;
    loop {
        let (stream, _) = listener.accept().await?;
        let tls = tls.clone();
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(|request| async move { Ok::<_, Infallible>(answer(request).await) });
            // A client that goes away is none of our business.
            let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let review = match read(request).await {
        Ok(asked) => judge(&path, &asked).into_review(),
        Err(error) => AdmissionResponse::invalid(format!("{error:#}")).into_review(),
    };
    Response::new(Full::new(serde_json::to_vec(&review).unwrap_or_default().into()))
}

async fn read(request: Request<Incoming>) -> Result<AdmissionRequest<DynamicObject>> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: AdmissionReview<DynamicObject> = serde_json::from_slice(&body)?;
    review.try_into().context("the review should hold a request")
}

/// `/mutate` puts an annotation on everything; whoever is called `forbidden` is refused by `/validate`.
fn judge(path: &str, asked: &AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    let response = AdmissionResponse::from(asked);
    let Some(object) = &asked.object else { return response };
    match path {
        "/mutate" => match annotate(object) {
            Ok(patch) => response.with_patch(patch).unwrap_or_else(AdmissionResponse::invalid),
            Err(error) => AdmissionResponse::invalid(error),
        },
        _ if object.name_any() == "forbidden" => response.deny("its name says it"),
        _ => response,
    }
}

fn annotate(object: &DynamicObject) -> Result<json_patch::Patch> {
    let mut patch = Vec::new();
    if object.annotations().is_empty() {
        patch.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    }
    patch.push(json!({"op": "add", "path": "/metadata/annotations/kube-rs", "value": "was here"}));
    Ok(serde_json::from_value(patch.into())?)
}
