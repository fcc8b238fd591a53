//! How long a container takes to start, and what the keeper weighs: `start PROGRAM COUNT`, where PROGRAM is the binary.

#![allow(clippy::print_stdout, reason = "it is for people")]

use std::{error::Error, fs, time::Instant};

use pods::runtime::{Capabilities, ContainerId, ContainerSpec, Limits, Runtime, User};
use selvedge_processes::{Options, Processes, end_all};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (program, count) = (args.next().ok_or("which program?")?, args.next().unwrap_or("100".into()).parse()?);
    let dir = std::env::temp_dir().join(format!("selvedge-start-{}", std::process::id()));
    let agent = Processes::start(Options { program: Some(program.into()), ..Options::new(&dir) }).await?;
    let mut took = Vec::new();
    for number in 0..count {
        let id = ContainerId { pod: format!("pod-{number}"), name: "c".into(), attempt: 0 };
        let spec = ContainerSpec {
            log: dir.join(format!("logs/{number}/0.log")),
            pod: "default/pod".into(),
            image: "selvedge.dev/sample/clock".into(),
            command: vec![],
            args: vec!["--every=1000".into()],
            env: vec![],
            working_dir: None,
            mounts: vec![],
            limits: Limits::default(),
            address: None,
            tty: false,
            stdin: false,
            user: User::default(),
            hostname: String::new(),
            no_new_privileges: false,
            capabilities: Capabilities::default(),
            restrictions: vec![],
            id,
        };
        let begun = Instant::now();
        agent.start(spec).await?;
        took.push(begun.elapsed());
    }
    took.sort();
    println!("start p50 {:?} p99 {:?} of {count}", took[took.len() / 2], took[took.len() * 99 / 100]);
    for entry in fs::read_dir("/proc")?.flatten() {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if line.contains(&format!("keeper\0{}", dir.join("keeper").display())) {
            for line in fs::read_to_string(entry.path().join("smaps_rollup"))?.lines() {
                if line.starts_with("Rss") || line.starts_with("Pss:") || line.starts_with("Private") {
                    println!("keeper {line}");
                }
            }
        }
    }
    end_all(&dir).await?;
    fs::remove_dir_all(dir)?;
    Ok(())
}
