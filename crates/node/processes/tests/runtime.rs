//! The runtime with real processes: a keeper, containers, and what happens when any of them is killed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod bed;

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use bed::{Bed, PROGRAM, exit_of, find, line, wait_for, within};
use pods::runtime::{ContainerId, ContainerSpec, Mount, NEVER_BEGAN, Runtime};
use selvedge_processes as processes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn kill(pid: i32) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
}

fn is_there(pid: i32) -> bool {
    // One that has ended and that nobody has looked at yet is not there.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[tokio::test]
async fn runs_writes_and_ends() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let mut spec = bed
        .spec("one", "echo out; echo err >&2; pwd; echo $0; printf done > $SELVEDGE_ROOT/dev/termination-log; exit 3");
    let message = bed.dir.path().join("message");
    fs::write(&message, "").unwrap();
    spec.mounts = vec![Mount { from: message, at: "/dev/termination-log".into(), read_only: false }];
    let begun = agent.start(spec.clone()).await.unwrap();
    assert_eq!((begun.id.clone(), begun.image.as_str()), (spec.id.clone(), "selvedge.dev/sample/web"));
    let exit = exit_of(&agent, &spec.id).await;
    assert_eq!((exit.code, exit.signal, exit.message.as_str()), (3, None, "done"));
    let text = fs::read_to_string(&spec.log).unwrap();
    assert!(text.contains(" stdout F out\n") && text.contains(" stderr F err\n"), "{text}");
    let root = bed.dir.path().join("keeper/roots/uid-one/c").canonicalize().unwrap();
    assert!(bed.log(&spec).contains(&root.display().to_string()));
    // Again is the same one, until it is forgotten.
    assert_eq!(agent.start(spec.clone()).await.unwrap().exit, Some(exit));
    agent.forget(&spec.id).await.unwrap();
    assert_eq!(find(&agent, &spec.id).await, None);
    assert!(spec.log.exists());
    agent.forget_pod(&spec.id.pod).await.unwrap();
    assert!(!root.exists() && spec.log.exists());
}

#[tokio::test]
async fn without_containers_there_is_no_keeper() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    assert!(agent.list().await.unwrap().is_empty() && agent.usage().await.unwrap().is_empty());
    agent.forget_pod("nobody").await.unwrap();
    assert!(!bed.dir.path().join("keeper/lock").exists());
    assert!(agent.image("nginx").await.is_err() && !bed.dir.path().join("keeper/lock").exists());
    agent.image("selvedge.dev/sample/web").await.unwrap();
    assert!(is_there(bed.keeper()));
}

#[tokio::test]
async fn its_environment_is_its_own() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let mut spec = bed.spec("env", "env; ls -l /proc/self/fd; ulimit -n; umask");
    spec.env = vec![("COLOUR".into(), "green and blue".into())];
    spec.address = agent.address(&spec.id.pod).await.unwrap();
    assert_eq!(spec.address, Some([127, 199, 0, 2].into()));
    agent.start(spec.clone()).await.unwrap();
    exit_of(&agent, &spec.id).await;
    let log = bed.log(&spec);
    let names: Vec<&str> = log.iter().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    let known = [
        "COLOUR",
        "HOME",
        "HOST",
        "HOSTNAME",
        "LANG",
        "OLDPWD",
        "PATH",
        "POD_IP",
        "PORT",
        "PWD",
        "SELVEDGE_EDGE",
        "SELVEDGE_NAMESPACE",
        "SELVEDGE_NODE",
        "SELVEDGE_POD",
        "SELVEDGE_ROOT",
        "SHLVL",
        "TZ",
        "_",
    ];
    assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    for expected in ["COLOUR=green and blue", "HOST=127.199.0.2", "SELVEDGE_POD=default/env", "HOSTNAME=env", "0022"] {
        assert!(log.iter().any(|line| line == expected), "{expected} in {log:?}");
    }
    // Its own three, and the directory itself: nothing of the keeper's, nor of whatever this test was started with.
    let open: Vec<&String> = log.iter().filter(|line| line.contains(" -> ")).collect();
    assert_eq!(open.len(), 4, "{open:?}");
}

#[tokio::test]
async fn nobody_else_may_look() {
    use std::os::unix::fs::PermissionsExt;
    let bed = Bed::new();
    let agent = bed.agent().await;
    let mut spec = bed.spec("quiet", "sleep 1000");
    spec.env = vec![("PASSWORD".into(), "correct horse".into())];
    agent.start(spec).await.unwrap();
    let mode = |path: &str| fs::metadata(bed.dir.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("keeper"), mode("keeper/socket"), mode("keeper/state")), (0o700, 0o600, 0o600));
    let state = fs::read_to_string(bed.dir.path().join("keeper/state")).unwrap();
    assert!(state.contains("uid-quiet") && !state.contains("correct horse"), "{state}");
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let mut spec = bed.spec("no", "true");
    spec.command = vec!["/no/such/program".into()];
    let failure = agent.start(spec.clone()).await.unwrap_err();
    assert_eq!(failure.reason, NEVER_BEGAN);
    assert!(failure.message.contains("/no/such/program"), "{}", failure.message);
    assert_eq!(find(&agent, &spec.id).await, None);
    spec.image = "nginx".into();
    assert_eq!(agent.start(spec.clone()).await.unwrap_err().reason, "ErrImagePull");
    spec = bed.spec("mount", "true");
    spec.mounts = vec![Mount { from: "/".into(), at: "/".into(), read_only: false }];
    assert_eq!(agent.start(spec).await.unwrap_err().reason, "CreateContainerError");
}

#[tokio::test]
async fn all_of_it_ends() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    // One that ignores SIGTERM, with a child, a grandchild in a session of its own, and one that was left behind.
    let spec = bed.spec(
        "tree",
        "trap '' TERM; sleep 1000 & echo child $!; setsid sh -c 'trap \"\" TERM; sleep 1001 & echo other $!; wait' & \
         sh -c 'setsid sleep 1002 & echo left $!'; echo ready; while true; do sleep 1; done",
    );
    agent.start(spec.clone()).await.unwrap();
    line(&bed, &spec, "ready").await;
    let mut pids = Vec::new();
    for name in ["child ", "other ", "left "] {
        pids.push(line(&bed, &spec, name).await.parse::<i32>().unwrap());
    }
    assert!(pids.iter().all(|pid| is_there(*pid)));
    agent.signal(&spec.id, 15).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(find(&agent, &spec.id).await.unwrap().exit, None);
    agent.signal(&spec.id, 9).await.unwrap();
    let exit = exit_of(&agent, &spec.id).await;
    assert_eq!((exit.code, exit.signal), (137, Some(9)));
    wait_for("all to end", async || pids.iter().all(|pid| !is_there(*pid)).then_some(())).await;
    wait_for("no zombies", async || children(bed.keeper()).is_empty().then_some(())).await;
    agent.signal(&spec.id, 15).await.unwrap();
}

fn children(pid: i32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn what_a_container_leaves_behind_ends_with_it() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let spec = bed.spec("left", "setsid sleep 1000 & echo left $!; exit 0");
    agent.start(spec.clone()).await.unwrap();
    assert_eq!(exit_of(&agent, &spec.id).await.code, 0);
    let pid = line(&bed, &spec, "left ").await.parse().unwrap();
    wait_for("the rest to end", async || (!is_there(pid)).then_some(())).await;
    wait_for("no zombies", async || children(bed.keeper()).is_empty().then_some(())).await;
}

#[tokio::test]
async fn outlives_the_agent() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let spec = bed.spec("on", "echo pid $$; n=0; while true; do echo n $n; n=$((n+1)); sleep 0.02; done");
    let short = bed.spec("short", "sleep 0.3; exit 7");
    let begun = agent.start(spec.clone()).await.unwrap();
    agent.start(short.clone()).await.unwrap();
    let address = agent.address("uid-on").await.unwrap();
    let pid: i32 = line(&bed, &spec, "pid ").await.parse().unwrap();
    drop(agent);
    let before = bed.log(&spec).len();
    wait_for("more lines", async || (bed.log(&spec).len() > before + 20).then_some(())).await;
    let agent = bed.agent().await;
    assert_eq!(find(&agent, &spec.id).await, Some(begun));
    assert_eq!(agent.address("uid-on").await.unwrap(), address);
    assert!(is_there(pid));
    assert_eq!(exit_of(&agent, &short.id).await.code, 7);
    let numbers: Vec<usize> = bed.log(&spec).iter().filter_map(|line| line.strip_prefix("n ")?.parse().ok()).collect();
    assert_eq!(numbers, (0..numbers.len()).collect::<Vec<_>>(), "no gap in the log");
}

#[tokio::test]
async fn the_end_of_the_keeper_is_the_end_of_its_containers() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let spec = bed.spec("orphan", "setsid sleep 1000 & echo child $!; echo pid $$; sleep 1001");
    agent.start(spec.clone()).await.unwrap();
    let pid: i32 = line(&bed, &spec, "pid ").await.parse().unwrap();
    let child: i32 = line(&bed, &spec, "child ").await.parse().unwrap();
    let address = agent.address("uid-orphan").await.unwrap();
    while futures::FutureExt::now_or_never(agent.changed()).is_some() {}
    let keeper = bed.keeper();
    kill(keeper);
    tokio::time::timeout(Duration::from_secs(10), agent.changed()).await.expect("it is noticed");
    let exit = exit_of(&agent, &spec.id).await;
    assert_eq!((exit.code, exit.signal), (137, Some(9)));
    wait_for("all to end", async || (!is_there(pid) && !is_there(child)).then_some(())).await;
    assert_ne!(bed.keeper(), keeper);
    assert_eq!(agent.address("uid-orphan").await.unwrap(), address);
    // And the next run works.
    let mut again = bed.spec("orphan", "exit 0");
    again.id.attempt = 1;
    agent.start(again.clone()).await.unwrap();
    assert_eq!(exit_of(&agent, &again.id).await.code, 0);
}

#[tokio::test]
async fn becomes_another_program_and_keeps_all() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let mut spec = bed.spec("kept", "echo pid $$; n=0; while read line; do echo got $line; done; exit 5");
    spec.stdin = true;
    agent.start(spec.clone()).await.unwrap();
    let pid: i32 = line(&bed, &spec, "pid ").await.parse().unwrap();
    let keeper = bed.keeper();
    drop(agent);
    // A keeper of another build: the same program under another inode.
    let copy = bed.dir.path().join("copy");
    fs::copy(PROGRAM, &copy).unwrap();
    processes::replace_keeper(bed.dir.path(), &copy).await.unwrap();
    wait_for("the next program", async || {
        (fs::read_link(format!("/proc/{keeper}/exe")).ok()? == fs::canonicalize(&copy).unwrap()).then_some(())
    })
    .await;
    let agent = bed.agent().await;
    assert_eq!((bed.keeper(), is_there(pid)), (keeper, true));
    let mut attached = agent.attach(&spec.id, true).await.unwrap();
    let mut stdin = attached.stdin.take().unwrap();
    stdin.write_all(b"a line\n").await.unwrap();
    let mut buffer = vec![0; 11];
    within("its output", attached.stdout.as_mut().unwrap().read_exact(&mut buffer)).await.unwrap();
    assert_eq!(buffer, b"got a line\n");
    stdin.shutdown().await.unwrap();
    drop(stdin);
    assert_eq!(within("its end", attached.exit).await.unwrap(), 5);
    assert_eq!(exit_of(&agent, &spec.id).await.code, 5);
}

#[tokio::test]
async fn commands_in_a_container() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let mut spec = bed.spec("exec", "sleep 1000");
    spec.env = vec![("WHO".into(), "me".into())];
    agent.start(spec.clone()).await.unwrap();
    let command = |script: &str| ["sh", "-c", script].map(str::to_owned);
    let seconds = Duration::from_secs(20);
    let output = agent.exec(&spec.id, &command("echo $WHO; echo no >&2; exit 4"), seconds).await.unwrap();
    let text = String::from_utf8(output.text).unwrap();
    assert!(output.code == 4 && text.contains("me\n") && text.contains("no\n"), "{text}");
    let output = agent.exec(&spec.id, &command("head -c 100000 /dev/zero"), seconds).await.unwrap();
    assert_eq!((output.code, output.text.len()), (0, 16 << 10));
    let failure = agent.exec(&spec.id, &["/no/such".to_owned()], seconds).await.unwrap_err();
    assert!(failure.message.contains("/no/such"), "{failure}");
    // One that takes too long ends, with what it began.
    // Containers do not see the data directory.
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("pid");
    let script = format!("sleep 1003 & echo $! > {}; wait", file.display());
    let failure = agent.exec(&spec.id, &command(&script), Duration::from_millis(700)).await.unwrap_err();
    assert_eq!(failure.reason, "DeadlineExceeded");
    let pid: i32 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    wait_for("the command to end", async || (!is_there(pid)).then_some(())).await;
    // With somebody at its ends.
    let mut attached = agent.open(&spec.id, &["cat".to_owned()], true, false).await.unwrap();
    let mut stdin = attached.stdin.take().unwrap();
    stdin.write_all(b"there and back").await.unwrap();
    drop(stdin);
    let mut text = String::new();
    within("its output", attached.stdout.take().unwrap().read_to_string(&mut text)).await.unwrap();
    assert_eq!((text.as_str(), within("its end", attached.exit).await.unwrap()), ("there and back", 0));
    let nobody = ContainerId { attempt: 9, ..spec.id.clone() };
    assert_eq!(agent.exec(&nobody, &command("true"), seconds).await.unwrap_err().reason, "NotFound");
}

#[tokio::test]
async fn a_terminal() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let spec = bed.spec("tty", "sleep 1000");
    agent.start(spec.clone()).await.unwrap();
    let script = "test -t 0 && test -t 1 && echo yes; read line; stty size; exit 6";
    let mut attached = agent.open(&spec.id, &["sh", "-c", script].map(str::to_owned), true, true).await.unwrap();
    assert!(attached.stderr.is_none());
    attached.resize.as_ref().unwrap().send((132, 43)).await.unwrap();
    let mut stdout = attached.stdout.take().unwrap();
    let mut buffer = vec![0; 5];
    within("a terminal", stdout.read_exact(&mut buffer)).await.unwrap();
    assert_eq!(buffer, b"yes\r\n");
    attached.stdin.as_mut().unwrap().write_all(b"go\n").await.unwrap();
    let mut text = String::new();
    within("its output", stdout.read_to_string(&mut text)).await.unwrap();
    assert!(text.contains("43 132"), "{text}");
    assert_eq!(within("its end", attached.exit).await.unwrap(), 6);
    // A container with one, and Ctrl-C.
    let mut spec =
        bed.spec("own", "trap 'echo int; exit 8' INT; test -t 0 && echo yes; while true; do sleep 0.05; done");
    (spec.tty, spec.stdin) = (true, true);
    agent.start(spec.clone()).await.unwrap();
    line(&bed, &spec, "yes").await;
    let mut attached = agent.attach(&spec.id, true).await.unwrap();
    assert!(attached.stderr.is_none());
    // A shell that is just starting a program forgets about a signal; whoever types then types again.
    let mut stdin = attached.stdin.take().unwrap();
    let typing = async move {
        loop {
            let _ = stdin.write_all(b"\x03").await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        exit = within("Ctrl-C to end it", attached.exit) => assert_eq!(exit.unwrap(), 8),
        () = typing => {}
    }
}

#[tokio::test]
async fn samples() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let page = bed.dir.path().join("page");
    fs::create_dir(&page).unwrap();
    fs::write(page.join("index.html"), "<p>florin</p>").unwrap();
    let sample = async |name: &str| {
        let mut spec = bed.spec(name, "");
        (spec.image, spec.command) = (format!("selvedge.dev/sample/{name}"), vec![]);
        spec.address = agent.address(&spec.id.pod).await.unwrap();
        if name == "web" {
            spec.mounts = vec![Mount { from: page.clone(), at: "/usr/share/nginx/html".into(), read_only: true }];
        }
        agent.start(spec.clone()).await.unwrap();
        spec
    };
    let web = sample("web").await;
    line(&bed, &web, "listening on").await;
    let text = ask(&web, "GET / HTTP/1.0\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("<p>florin</p>"), "{text}");
    let echo = sample("echo").await;
    line(&bed, &echo, "listening on").await;
    assert_eq!(ask(&echo, "hello there").await, "hello there");
    assert!(ask(&echo, "GET /x HTTP/1.0\r\n\r\n").await.contains("pod default/echo"));
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(b"datagram", (echo.address.unwrap(), 8080)).await.unwrap();
    let mut buffer = [0; 32];
    let (count, _) = socket.recv_from(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..count], b"datagram");
    let burn = sample("burn").await;
    line(&bed, &burn, "listening on").await;
    assert!(ask(&burn, "GET /burn?cpu=300&memory=20&seconds=30 HTTP/1.0\r\n\r\n").await.contains("\"memoryMiB\":20"));
    let clock = sample("clock").await;
    wait_for("a tick", async || bed.log(&clock).iter().any(|line| line.ends_with("tick 0")).then_some(())).await;
    wait_for("usage", async || {
        let usage = agent.usage().await.unwrap();
        assert_eq!(usage.len(), 4);
        let of = usage.iter().find(|usage| usage.id.as_ref() == Some(&burn.id)).unwrap();
        (of.cpu_nanos > 100_000_000 && of.memory_bytes > 20 << 20 && of.processes == 1).then_some(())
    })
    .await;
}

async fn ask(spec: &ContainerSpec, text: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect((spec.address.unwrap(), 8080)).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    within("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn limits_hold_or_it_is_said_that_they_do_not() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let mut eater = bed.spec("eater", "");
    (eater.image, eater.command) = ("selvedge.dev/sample/burn".into(), vec![]);
    eater.args = vec!["--memory=200".into()];
    eater.address = agent.address(&eater.id.pod).await.unwrap();
    eater.limits.memory_bytes = Some(32 << 20);
    agent.image(&eater.image).await.unwrap();
    let said = agent.shortcomings(&eater);
    agent.start(eater.clone()).await.unwrap();
    if said.is_empty() {
        let exit = exit_of(&agent, &eater.id).await;
        assert!(exit.out_of_memory && exit.code == 137, "{exit:?}");
    }
    // A bomb in a container, and one that is unharmed.
    let mut bomb = bed.spec("bomb", "b() { b | b & }; b; sleep 1000");
    bomb.limits.processes = Some(20);
    let other = bed.spec("other", "n=0; while true; do echo n $n; n=$((n+1)); sleep 0.05; done");
    if agent.shortcomings(&bomb).is_empty() {
        agent.start(other.clone()).await.unwrap();
        agent.start(bomb.clone()).await.unwrap();
        wait_for("the bomb to burst", async || {
            let text = fs::read_to_string(&bomb.log).unwrap_or_default();
            text.to_lowercase().contains("fork").then_some(())
        })
        .await;
        let before = bed.log(&other).len();
        wait_for("others to go on", async || (bed.log(&other).len() > before + 5).then_some(())).await;
        let of = agent.usage().await.unwrap().into_iter().find(|usage| usage.id.as_ref() == Some(&bomb.id));
        assert!(of.is_none_or(|usage| usage.processes <= 20));
        agent.signal(&bomb.id, 9).await.unwrap();
        exit_of(&agent, &bomb.id).await;
        let group = format!("{}_{}_0", bomb.id.pod, bomb.id.name);
        let left = std::process::Command::new("find").args(["/sys/fs/cgroup", "-name", &group]).output().unwrap();
        assert!(left.stdout.is_empty(), "{}", String::from_utf8_lossy(&left.stdout));
    }
}

/// Who knows which pods there are decides about their logs: the agent.
#[tokio::test]
async fn logs_stay_where_they_are() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let mut spec = bed.spec("log", "echo one; exit 1");
    let mut logs: Vec<PathBuf> = Vec::new();
    for attempt in 0..4 {
        spec.id.attempt = attempt;
        spec.log = bed.dir.path().join(format!("logs/log/{attempt}.log"));
        agent.start(spec.clone()).await.unwrap();
        exit_of(&agent, &spec.id).await;
        agent.forget(&spec.id).await.unwrap();
        logs.push(spec.log.clone());
    }
    agent.forget_pod(&spec.id.pod).await.unwrap();
    assert!(logs.iter().all(|log| log.exists()), "{logs:?}");
}

#[tokio::test]
async fn many_at_once() {
    let bed = Bed::new();
    let agent = bed.agent().await;
    let begun = Instant::now();
    let all = (0..60).map(|number| agent.start(bed.spec(&format!("many-{number}"), &format!("exit {number}"))));
    for started in futures::future::join_all(all).await {
        started.unwrap();
    }
    let took = begun.elapsed();
    wait_for("all to end", async || agent.list().await.unwrap().iter().all(|one| one.exit.is_some()).then_some(()))
        .await;
    for (number, container) in agent
        .list()
        .await
        .unwrap()
        .iter()
        .map(|one| (one.id.pod.strip_prefix("uid-many-").unwrap().parse::<i32>().unwrap(), one))
    {
        assert_eq!(container.exit.as_ref().unwrap().code, number);
    }
    assert!(took < Duration::from_secs(20), "{took:?}");
}
