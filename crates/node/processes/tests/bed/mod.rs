//! A directory, an agent and containers for a test; what it starts ends with it.

#![allow(dead_code, reason = "each file of tests needs some of it")]

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use pods::runtime::{Capabilities, Container, ContainerId, ContainerSpec, Exit, Limits, Runtime, User};
use selvedge_processes::{self as processes, Options, Processes};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_selvedge-processes");

pub struct Bed {
    pub dir: tempfile::TempDir,
    pub options: Options,
}

impl Bed {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            program: Some(PROGRAM.into()),
            node: "node".into(),
            edge: "edge".into(),
            range: Some(([127, 199, 0, 0].into(), 17)),
            ..Options::new(dir.path())
        };
        Self { dir, options }
    }

    pub async fn agent(&self) -> Arc<Processes> {
        Processes::start(self.options.clone()).await.unwrap()
    }

    pub fn spec(&self, name: &str, script: &str) -> ContainerSpec {
        let id = ContainerId { pod: format!("uid-{name}"), name: "c".into(), attempt: 0 };
        ContainerSpec {
            pod: format!("default/{name}"),
            image: "selvedge.dev/sample/web".into(),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            args: vec![],
            env: vec![],
            working_dir: None,
            mounts: vec![],
            limits: Limits::default(),
            address: None,
            log: self.dir.path().join(format!("logs/{name}/0.log")),
            tty: false,
            stdin: false,
            user: User::default(),
            hostname: String::new(),
            no_new_privileges: false,
            capabilities: Capabilities::default(),
            restrictions: vec![],
            id,
        }
    }

    pub fn log(&self, spec: &ContainerSpec) -> Vec<String> {
        let text = fs::read_to_string(&spec.log).unwrap_or_default();
        text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or(line).to_owned()).collect()
    }

    pub fn keeper(&self) -> i32 {
        fs::read_to_string(self.dir.path().join("keeper/lock")).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Its own runtime: the test's may be gone.
        let dir = self.dir.path().to_owned();
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(processes::end_all(&dir)).unwrap();
        });
        ended.join().unwrap();
    }
}

/// How long anything may take in a test.
const LONGEST: Duration = Duration::from_secs(30);

pub async fn within<T>(what: &str, doing: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LONGEST, doing).await.ok();
    assert!(done.is_some(), "waited too long for {what}");
    done.unwrap()
}

pub async fn wait_for<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + LONGEST;
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < until, "waited too long for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn find(agent: &Processes, id: &ContainerId) -> Option<Container> {
    agent.list().await.unwrap().into_iter().find(|container| container.id == *id)
}

pub async fn exit_of(agent: &Processes, id: &ContainerId) -> Exit {
    wait_for("an exit", async || find(agent, id).await?.exit).await
}

pub async fn line(bed: &Bed, spec: &ContainerSpec, begins: &str) -> String {
    let found = async || bed.log(spec).into_iter().find(|line| line.starts_with(begins));
    wait_for(begins, found).await[begins.len()..].trim().to_owned()
}
