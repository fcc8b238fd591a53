//! One remote APIService: where it leads, and the connections there.

use std::{
    error::Error,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cache::object::Object;
use clock::rarely::Rarely;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use request::ROOT;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use tokio::sync::{Notify, futures::Notified};

use super::{discovered::Documents, merge::Shown};
use crate::{
    Server,
    mount::AnyBody,
    onward,
    webhooks::{Address, Connector, Failure, failure, verifying},
};

/// A remote server that is not asked keeps its connections this long, and this many.
const IDLE: Duration = Duration::from_secs(60);
const SPARE: usize = 8;
/// A client's certificate is replaced when it is this old, in seconds: long before its end.
const RENEW: i64 = 30 * 24 * 60 * 60;

/// What a tenant is told of a remote API that cannot be reached. Details would tell of a network that is not the
/// tenant's.
const UNREACHABLE: &str = "the service cannot be reached, or gives no answer that can be used";

/// The Service that a remote APIService names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub port: u16,
}

pub struct Remote {
    pub cluster: Box<str>,
    pub name: Box<str>,
    pub group: Box<str>,
    pub version: Box<str>,
    pub service: Service,
    group_priority: i64,
    version_priority: i64,
    bundle: String,
    is_insecure: bool,
    uid: String,
    is_available: AtomicBool,
    is_gone: AtomicBool,
    is_tended: AtomicBool,
    changed: Notify,
    clients: Mutex<Option<Clients>>,
    documents: RwLock<Arc<Documents>>,
    failed: Rarely,
}

/// What requests are sent with.
#[derive(Clone)]
pub struct Clients {
    pub pooled: Client<Connector, AnyBody>,
    /// For requests that become something else than HTTP, each with a connection of its own.
    pub single: Connector,
    renew_at: i64,
}

impl Remote {
    /// From an APIService. Nothing if it is local.
    pub fn read(object: &Object) -> Option<Self> {
        let value = object.value();
        let spec = &value["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let service = spec["service"].as_object()?;
        let of_service = |field: &str| service.get(field).and_then(Value::as_str).unwrap_or_default().into();
        let port = service.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let service =
            Service { namespace: of_service("namespace"), name: of_service("name"), port: port.unwrap_or(443) };
        Some(Self {
            cluster: object.cluster().into(),
            name: object.name().into(),
            group: text(&spec["group"]).into(),
            version: text(&spec["version"]).into(),
            service,
            group_priority: spec["groupPriorityMinimum"].as_i64().unwrap_or_default(),
            version_priority: spec["versionPriority"].as_i64().unwrap_or_default(),
            bundle: text(&spec["caBundle"]),
            is_insecure: spec["insecureSkipTLSVerify"] == true,
            uid: text(&value["metadata"]["uid"]),
            is_available: AtomicBool::new(says_available(&value)),
            is_gone: AtomicBool::default(),
            is_tended: AtomicBool::default(),
            changed: Notify::new(),
            clients: Mutex::default(),
            documents: RwLock::default(),
            failed: Rarely::new(),
        })
    }

    /// The other says the same, but perhaps for its status.
    pub fn is_same(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.uid.clone(), one.service.clone(), one.bundle.clone(), one.is_insecure);
        of(self) == of(other)
            && (self.group_priority, self.version_priority) == (other.group_priority, other.version_priority)
    }

    /// Takes over what was known of an earlier form of the same APIService.
    pub fn inherit(&self, earlier: &Self) {
        *self.documents.write().unwrap_or_else(PoisonError::into_inner) = earlier.documents();
    }

    pub fn is_available(&self) -> bool {
        self.is_available.load(Relaxed)
    }

    pub fn set_available(&self, is: bool) {
        self.is_available.store(is, Relaxed);
    }

    /// It is not registered any more, or says something else.
    pub fn leave(&self) {
        self.is_gone.store(true, Relaxed);
        self.changed.notify_one();
    }

    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Where it leads may have changed: connections are made anew, and it is checked again.
    pub fn wake(&self) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.changed.notify_one();
    }

    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Whether nobody has begun to check it.
    pub fn begin(&self) -> bool {
        !self.is_tended.swap(true, Relaxed)
    }

    pub fn documents(&self) -> Arc<Documents> {
        self.documents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_documents(&self, documents: Documents) {
        *self.documents.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(documents);
    }

    pub fn shown(&self) -> Shown {
        let documents = self.documents();
        Shown {
            group: self.group.clone(),
            version: self.version.clone(),
            group_priority: self.group_priority,
            version_priority: self.version_priority,
            resources: serde_json::from_slice(&documents.resources).unwrap_or_default(),
            is_fresh: self.is_available() && documents.is_known,
        }
    }

    /// `wardle.example.com/v1alpha1`
    pub fn group_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The address that requests are made for.
    pub fn url(&self, path: &str) -> String {
        let Service { namespace, name, port } = &self.service;
        format!("https://{name}.{namespace}.svc:{port}{path}")
    }

    pub fn clients(&self, server: &Server) -> Result<Clients, String> {
        let now = clock::unix();
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clients) = clients.as_ref().filter(|clients| clients.renew_at > now) {
            return Ok(clients.clone());
        }
        let made = self.connect(server, now)?;
        Ok(clients.insert(made).clone())
    }

    fn connect(&self, server: &Server, now: i64) -> Result<Clients, String> {
        let builder = if self.is_insecure { onward::unverified()? } else { verifying(&self.bundle)? };
        let front_proxy = server.identity.pki().front_proxy();
        let pair = front_proxy.issue(&self.cluster, now).map_err(|error| error.to_string())?;
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).map_err(|e| e.to_string())?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|e| e.to_string())?;
        let mut tls = builder.with_client_auth_cert(vec![certificate], key).map_err(|e| e.to_string())?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let single = tls.clone();
        tls.alpn_protocols.insert(0, b"h2".to_vec());
        let connector = |tls| {
            let Service { namespace, name, port } = &self.service;
            let (cluster, namespace, name) = (self.cluster.to_string(), namespace.to_string(), name.to_string());
            let address = Address::Service { cluster, namespace, name, port: *port };
            let reach = (*self.cluster != *ROOT).then(|| server.reach.clone());
            Connector::new(address, Arc::new(tls), &server.cache, reach)
        };
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(SPARE);
        Ok(Clients { pooled: builder.build(connector(tls)?), single: connector(single)?, renew_at: now + RENEW })
    }

    /// What is told of a request that failed. In workspaces of tenants the log alone says everything.
    pub fn failure(&self, error: &(dyn Error + 'static)) -> String {
        match failure(error) {
            Failure::Own(why) => why,
            Failure::Transport(why) | Failure::Answer(why) => self.untold(why),
        }
    }

    pub fn untold(&self, why: String) -> String {
        if *self.cluster == *ROOT {
            return why;
        }
        if let Some(times) = self.failed.due() {
            let (workspace, apiservice) = (&self.cluster, &self.name);
            tracing::warn!(%workspace, %apiservice, times, why, "an aggregated API of a workspace cannot be used");
        }
        UNREACHABLE.to_owned()
    }
}

/// Whether the status of an APIService says that it is available.
fn says_available(value: &Value) -> bool {
    let conditions = value["status"]["conditions"].as_array();
    let available = conditions.into_iter().flatten().find(|condition| condition["type"] == "Available");
    available.is_some_and(|condition| condition["status"] == "True")
}
