//! An edge without a machine: the link's own state machine over a hash tree without contents, with a certificate that the center's
//! authority signs. Thousands of them fit into one process.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use link::transport::{Dial, Identity, Line, Proxy};
use link::{EdgeInput as Input, EdgeOutput as Output, EdgeStatus, HashTree, Holding, Position, Report, Version};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::sync::watch;

use crate::client::Result;

/// Where a certificate says its user's uid.
const UID: [u64; 8] = [1, 3, 6, 1, 4, 1, 57683, 2];

/// What all edges of a run have in common.
#[derive(Default)]
pub(crate) struct Fleet {
    pub(crate) online: AtomicU64,
    /// How often a link was lost.
    pub(crate) lost: AtomicU64,
    /// How many hold the object that the change is made to, in its newest form.
    pub(crate) acked: AtomicU64,
    /// Objects that were applied, by all.
    pub(crate) applied: AtomicU64,
    pub(crate) dials: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// What the first edge has to report.
    pub(crate) says: watch::Sender<Option<Report>>,
    pub(crate) wanted: std::sync::Mutex<Option<(String, Vec<u8>)>>,
}

pub(crate) struct Authority {
    roots: Vec<CertificateDer<'static>>,
    issuer: Issuer<'static, KeyPair>,
    /// One key for all: making thousands takes longer than the run.
    key: KeyPair,
}

impl Authority {
    pub(crate) fn read(data_dir: &Path) -> Result<Self> {
        let read = |name: &str| std::fs::read_to_string(data_dir.join("pki").join(name));
        let certificate = read("ca.crt")?;
        let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&read("ca.key")?)?)?;
        let roots = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
        Ok(Self { roots, issuer, key: KeyPair::generate()? })
    }

    pub(crate) fn dial(&self, url: &str, user: &str, uid: &str) -> Result<Dial> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, "system:edges");
        params.distinguished_name.push(DnType::CustomDnType(UID.to_vec()), uid);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.serialize_pem().as_bytes())?;
        let identity = Identity { chain: vec![certificate.der().clone()], key };
        Ok(Dial::new(url, &self.roots, Some(identity), Proxy::none())?)
    }
}

/// What an edge remembers: hashes without contents, as thousands of edges are in one process.
#[derive(Default)]
struct HashesOnly {
    tree: HashTree,
    seen: Option<Position>,
    says: Option<Report>,
}

impl AsRef<HashTree> for HashesOnly {
    fn as_ref(&self) -> &HashTree {
        &self.tree
    }
}

impl Holding for HashesOnly {
    fn seen(&self) -> Option<Position> {
        self.seen
    }
    fn floor(&self) -> Version {
        Version::default()
    }
    fn report(&self, key: &str) -> Option<Report> {
        self.says.clone().filter(|report| *report.key == *key)
    }
}

pub(crate) async fn edge(fleet: Arc<Fleet>, dial: Dial, seed: u64, wait: Duration, mut storm: watch::Receiver<u64>) {
    let begun = Instant::now();
    let mut machine = link::Edge::new(0, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut disk, mut link): (HashesOnly, Option<Line>) = Default::default();
    let (mut online, mut has_it, mut said) = (false, false, fleet.says.subscribe());
    tokio::time::sleep(wait).await;
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let mut inputs = vec![tokio::select! {
            _ = ticks.tick() => Input::Tick,
            _ = said.changed(), if seed == 0 => {
                disk.says = said.borrow_and_update().clone();
                Input::Reported(disk.says.iter().map(|report| report.key.clone()).collect())
            }
            _ = storm.changed(), if link.is_some() => {
                link = None;
                Input::Disconnected
            }
            message = async { match &mut link { Some(line) => line.next().await, None => std::future::pending().await } } => {
                match message {
                    Some(Ok(message)) => Input::Received(message),
                    _ => {
                        link = None;
                        Input::Disconnected
                    }
                }
            }
        }];
        while let Some(input) = inputs.pop() {
            for output in machine.handle(begun.elapsed().as_millis() as u64, input, &disk) {
                match output {
                    Output::Dial => {
                        fleet.dials.fetch_add(1, Relaxed);
                        inputs.push(match dial.session().await {
                            Ok(opened) => {
                                link = Some(opened);
                                Input::Connected
                            }
                            Err(_) => Input::Disconnected,
                        });
                    }
                    Output::Send(message) => {
                        if let Some(line) = &link {
                            let _ = line.send(message).await;
                        }
                    }
                    Output::Apply { ticket, batch } => {
                        fleet.applied.fetch_add(batch.changes.len() as u64, Relaxed);
                        for (key, content) in &batch.changes {
                            match content {
                                Some(content) => disk.tree.insert(key, content),
                                None => disk.tree.remove(key),
                            }
                            has_it |= content.as_ref().is_some_and(|content| fleet.is_wanted(key, content));
                        }
                        disk.seen = Some(batch.position);
                        inputs.push(Input::Applied { ticket });
                    }
                    Output::Disconnect => {
                        if let Some(line) = link.take() {
                            fleet.bytes.fetch_add(line.traffic().1, Relaxed);
                        }
                    }
                    Output::Status(status) => {
                        let now = matches!(status, EdgeStatus::Online);
                        if matches!(status, EdgeStatus::Online | EdgeStatus::Offline) && now != online {
                            online = now;
                            fleet.online.fetch_add(if now { 1 } else { u64::MAX }, Relaxed);
                            fleet.lost.fetch_add(u64::from(!now), Relaxed);
                        }
                    }
                    Output::ReportsAcked { .. } => disk.says = None,
                }
            }
        }
        if std::mem::take(&mut has_it) {
            fleet.acked.fetch_add(1, Relaxed);
        }
    }
}

impl Fleet {
    /// From now on counts who takes this.
    pub(crate) fn want(&self, key: String, payload: &str) {
        *self.wanted.lock().unwrap_or_else(|e| e.into_inner()) = Some((key, payload.as_bytes().to_vec()));
        self.acked.store(0, Relaxed);
    }

    fn is_wanted(&self, key: &str, content: &[u8]) -> bool {
        let wanted = self.wanted.lock().unwrap_or_else(|e| e.into_inner());
        wanted
            .as_ref()
            .is_some_and(|(wanted, payload)| key == wanted && memchr::memmem::find(content, payload).is_some())
    }
}
