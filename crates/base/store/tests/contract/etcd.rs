//! A real etcd for the tests: one for all of them, one test at a time, because compaction concerns the whole cluster.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use selvedge_store::{EtcdOptions, EtcdStore};
use tokio::sync::{Mutex, MutexGuard};

pub(crate) struct Etcd {
    pub(crate) endpoint: String,
    _dir: tempfile::TempDir,
    /// etcd ends when this is closed, however the tests end.
    _life: std::process::ChildStdin,
    _shell: std::process::Child,
}

static ETCD: OnceLock<Option<Etcd>> = OnceLock::new();
static TURN: Mutex<()> = Mutex::const_new(());
static STORES: AtomicUsize = AtomicUsize::new(0);

/// `None`, said in one line, when there is no etcd on this machine.
pub(crate) async fn store() -> Option<(Arc<EtcdStore>, MutexGuard<'static, ()>)> {
    let etcd = ETCD.get_or_init(start).as_ref()?;
    let turn = TURN.lock().await;
    let prefix = format!("/test-{}/", STORES.fetch_add(1, Ordering::Relaxed));
    Some((Arc::new(connect(&etcd.endpoint, &prefix).await), turn))
}

pub(crate) async fn connect(endpoint: &str, prefix: &str) -> EtcdStore {
    let options = EtcdOptions { endpoints: vec![endpoint.into()], prefix: prefix.into(), tls: None };
    for _ in 0..200 {
        match EtcdStore::connect(options.clone()).await {
            Ok(store) => return store,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    panic!("etcd at {endpoint} does not answer");
}

fn binary() -> Option<PathBuf> {
    let tools = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/etcd");
    let found =
        std::env::var_os("SELVEDGE_ETCD").map(PathBuf::from).into_iter().chain([tools]).find(|path| path.is_file());
    if found.is_none() {
        assert!(std::env::var("SELVEDGE_REQUIRE_TOOLS").as_deref() != Ok("1"), "etcd is required: run `make tools`");
        eprintln!("etcd is not here, so its tests are left out: run `make tools`, or set SELVEDGE_ETCD");
    }
    found
}

fn start() -> Option<Etcd> {
    let binary = binary()?;
    let dir = tempfile::tempdir().unwrap();
    let (client, peer) = (free_port(), free_port());
    let endpoint = format!("http://127.0.0.1:{client}");
    run(&binary, &endpoint, &format!("http://127.0.0.1:{peer}"), dir)
}

fn run(binary: &PathBuf, endpoint: &str, peer: &str, dir: tempfile::TempDir) -> Option<Etcd> {
    // The shell waits for the end of its input, which comes when this process ends in whatever way, and ends etcd.
    let script = r#""$@" >/dev/null 2>&1 & etcd=$!; echo started; read -r _; kill -9 $etcd"#;
    let mut child = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(binary)
        .args(["--unsafe-no-fsync", "--log-level=error", "--data-dir"])
        .arg(dir.path())
        .args(["--listen-client-urls", endpoint, "--advertise-client-urls", endpoint])
        .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Some(Etcd { endpoint: endpoint.into(), _dir: dir, _life: child.stdin.take().unwrap(), _shell: child })
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
