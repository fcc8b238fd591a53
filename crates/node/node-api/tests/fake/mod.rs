//! A runtime that runs a few commands which everybody knows, and pods on it.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses some of it, and fails where it is not as it should be"
)]

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pods::{
    Known, KnownContainer, Pods, Run,
    runtime::{Attached, Container, ContainerId, ContainerSpec, Failure, Output, Runtime, Usage},
};
use selvedge_node_api::{Node, Options};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, oneshot},
};

#[derive(Default)]
pub struct Fake {
    /// As terminals were told.
    pub sizes: Arc<Mutex<Vec<(u16, u16)>>>,
    /// Whoever could say how large a terminal is has gone.
    pub left: Arc<AtomicBool>,
}

/// Runs `cat`, `echo TEXT…`, `exit CODE`, `hold` (ends, but somebody keeps its ends open), `sizes`; anything else is not there.
async fn run(
    command: Vec<String>,
    mut stdin: tokio::io::DuplexStream,
    mut stdout: tokio::io::DuplexStream,
    mut stderr: tokio::io::DuplexStream,
) -> i32 {
    match command[0].as_str() {
        "cat" => {
            let mut buffer = [0; 1000];
            while let Ok(read) = stdin.read(&mut buffer).await {
                if read == 0 || stdout.write_all(&buffer[..read]).await.is_err() {
                    break;
                }
            }
            0
        }
        "echo" => {
            stdout.write_all(command[1..].join(" ").as_bytes()).await.ok();
            0
        }
        "exit" => {
            stderr.write_all(b"no").await.ok();
            command[1].parse().unwrap()
        }
        "hold" => {
            stdout.write_all(b"held").await.ok();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                drop((stdout, stderr));
            });
            0
        }
        _ => 127,
    }
}

#[async_trait::async_trait]
impl Runtime for Fake {
    fn version(&self) -> String {
        "fake://1".into()
    }
    async fn image(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }
    async fn address(&self, _: &str) -> Result<Option<IpAddr>, Failure> {
        Ok(None)
    }
    async fn start(&self, _: ContainerSpec) -> Result<Container, Failure> {
        Err(nothing())
    }
    async fn signal(&self, _: &ContainerId, _: i32) -> Result<(), Failure> {
        Ok(())
    }
    async fn forget(&self, _: &ContainerId) -> Result<(), Failure> {
        Ok(())
    }
    async fn forget_pod(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }
    async fn list(&self) -> Result<Vec<Container>, Failure> {
        Ok(vec![])
    }
    async fn changed(&self) {
        std::future::pending().await
    }
    async fn exec(&self, _: &ContainerId, _: &[String], _: Duration) -> Result<Output, Failure> {
        Err(nothing())
    }

    async fn open(&self, _: &ContainerId, command: &[String], _: bool, tty: bool) -> Result<Attached, Failure> {
        if command[0] == "nothing" {
            return Err(nothing());
        }
        let (stdin, theirs_in) = tokio::io::duplex(1000);
        let (stdout, theirs_out) = tokio::io::duplex(1000);
        let (stderr, theirs_err) = tokio::io::duplex(1000);
        let (exited, exit) = oneshot::channel();
        let (resize, mut resized) = mpsc::channel(4);
        let (sizes, left) = (self.sizes.clone(), self.left.clone());
        tokio::spawn(async move {
            while let Some(size) = resized.recv().await {
                sizes.lock().unwrap().push(size);
            }
            left.store(true, Ordering::SeqCst);
        });
        let command = command.to_vec();
        tokio::spawn(async move {
            let code = run(command, theirs_in, theirs_out, theirs_err).await;
            let _ = exited.send(code);
        });
        Ok(Attached {
            stdin: Some(Box::new(stdin)),
            stdout: Some(Box::new(stdout)),
            stderr: (!tty).then(|| Box::new(stderr) as _),
            resize: Some(resize),
            exit,
        })
    }

    async fn attach(&self, id: &ContainerId, stdin: bool) -> Result<Attached, Failure> {
        self.open(id, &["cat".to_owned()], stdin, false).await
    }

    async fn usage(&self) -> Result<Vec<Usage>, Failure> {
        let id = ContainerId { pod: "uid".into(), name: "app".into(), attempt: 1 };
        Ok(vec![Usage { id: Some(id), cpu_nanos: 5, memory_bytes: 4096, processes: 1 }])
    }
}

fn nothing() -> Failure {
    Failure { reason: "RunContainerError", message: "there is no such program".into() }
}

/// A pod `default/web` with a container `app` that runs for the second time, and a node that answers for it.
pub fn node(logs: PathBuf) -> (Node, Arc<Fake>) {
    let run = |attempt, is_running| Run {
        id: ContainerId { pod: "uid".into(), name: "app".into(), attempt },
        log: logs.join(format!("{attempt}.log")),
        is_running,
        started_at: "2026-01-02T03:04:05Z".into(),
    };
    let pod = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"containers": [{"name": "app", "image": "x"}]}});
    let known = Known {
        uid: "uid".into(),
        namespace: "default".into(),
        name: "web".into(),
        address: Some(Ipv4Addr::LOCALHOST.into()),
        pod: Arc::new(serde_json::from_value(pod).unwrap()),
        containers: vec![KnownContainer {
            name: "app".into(),
            is_init: false,
            current: Some(run(1, true)),
            previous: Some(run(0, false)),
        }],
    };
    let fake = Arc::new(Fake::default());
    let pods: Pods = [known].into_iter().collect();
    (Node::new(Options { name: "n1".into(), pods, runtime: fake.clone(), logs }), fake)
}
