//! What containers see, as whom: mounts at their paths, and nothing of them on the machine.

#![allow(clippy::unwrap_used, reason = "a test")]

mod bed;

use std::{fs, path::Path, process::Command, time::Duration};

use bed::{Bed, PROGRAM, exit_of, line};
use pods::runtime::{Mount, Runtime, User};

/// Where namespaces are not permitted there is nothing to look at here; who may administer the machine has them.
fn has_views() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let has = Command::new(PROGRAM).arg("try-view").arg(dir.path()).status().unwrap().success();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let held = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    assert!(has || held.unwrap() & CAP_SYS_ADMIN == 0);
    has
}

const CAP_SYS_ADMIN: u64 = 1 << 21;

fn mount(bed: &Bed, from: &str, at: &str, read_only: bool) -> Mount {
    Mount { from: bed.dir.path().join(from), at: at.into(), read_only }
}

#[tokio::test]
async fn mounts_are_at_their_paths_and_nowhere_on_the_machine() {
    if !has_views() {
        return;
    }
    let bed = Bed::new();
    for dir in ["config", "data", "token", "share"] {
        fs::create_dir(bed.dir.path().join(dir)).unwrap();
        fs::write(bed.dir.path().join(dir).join("what"), dir).unwrap();
    }
    fs::write(bed.dir.path().join("hosts"), "a hosts file").unwrap();
    fs::write(bed.dir.path().join("message"), "").unwrap();
    let mut spec = bed.spec(
        "view",
        "for path in /etc/app-view/what /data-view/what /data-view/deep/er/what /run/secrets/view/what /usr/share/view/x/what \
             /etc/hosts $SELVEDGE_ROOT/etc/app-view/what $SELVEDGE_ROOT/data-view/deep/er/what; do echo \"at $path $(cat $path)\"; done
         touch /etc/app-view/new || echo read-only; touch /data-view/new && echo written
         test -e /etc/passwd -a -c /dev/null -a -d /usr/bin -a -e /run && echo the rest is there
         echo found $(hostname); echo words > /dev/termination-log; pwd; echo ready; sleep 600",
    );
    spec.mounts = vec![
        mount(&bed, "token", "/data-view/deep/er", true),
        mount(&bed, "config", "/etc/app-view", true),
        mount(&bed, "data", "/data-view", false),
        mount(&bed, "token", "/var/run/secrets/view", true),
        mount(&bed, "share", "/usr/share/view/x", false),
        mount(&bed, "hosts", "/etc/hosts", false),
        mount(&bed, "message", "/dev/termination-log", false),
    ];
    spec.hostname = "view-0".into();
    spec.working_dir = Some("/not/there/yet".into());
    let agent = bed.agent().await;
    agent.start(spec.clone()).await.unwrap();
    line(&bed, &spec, "ready").await;
    let said = bed.log(&spec);
    for expected in [
        "at /etc/app-view/what config",
        "at /data-view/what data",
        "at /data-view/deep/er/what token",
        "at /run/secrets/view/what token",
        "at /usr/share/view/x/what share",
        "at /etc/hosts a hosts file",
        "read-only",
        "written",
        "the rest is there",
        "found view-0",
        "/not/there/yet",
    ] {
        assert!(said.iter().any(|line| line == expected), "{expected}: {said:#?}");
    }
    let below = said.iter().filter(|line| line.contains("/keeper/roots/")).collect::<Vec<_>>();
    assert!(below.len() == 2 && below[0].ends_with(" config") && below[1].ends_with(" token"), "{below:?}");
    assert!(bed.dir.path().join("data/new").exists());
    assert_eq!(fs::read_to_string(bed.dir.path().join("message")).unwrap(), "words\n");
    for path in ["/etc/app-view", "/data-view", "/run/secrets/view", "/usr/share/view", "/not", "/dev/termination-log"]
    {
        assert!(!Path::new(path).exists(), "{path} is on the machine");
    }
    // A command sees what its container sees.
    let command = ["sh", "-c", "cat /data-view/deep/er/what; hostname; pwd; touch /etc/app-view/new 2> /dev/null"]
        .map(str::to_owned);
    let output = agent.exec(&spec.id, &command, Duration::from_secs(20)).await.unwrap();
    let text = String::from_utf8_lossy(&output.text).into_owned();
    assert!(text.starts_with("tokenview-0\n/not/there/yet\n") && output.code != 0, "{text}");
}

#[tokio::test]
async fn what_cannot_be_mounted_is_said() {
    if !has_views() {
        return;
    }
    let bed = Bed::new();
    fs::create_dir(bed.dir.path().join("dir")).unwrap();
    fs::write(bed.dir.path().join("file"), "").unwrap();
    std::os::unix::fs::symlink("/etc", bed.dir.path().join("dir/link")).unwrap();
    let agent = bed.agent().await;
    for (number, (mounts, expected)) in [
        (vec![mount(&bed, "file", "/etc", false)], "what is there is a directory"),
        (vec![mount(&bed, "dir", "/etc/passwd", false)], "what is there is not a directory"),
        (
            vec![mount(&bed, "dir", "/view", false), mount(&bed, "file", "/view/link/made-by-a-link", false)],
            "is a link",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut spec = bed.spec(&format!("not-{number}"), "true");
        spec.mounts = mounts;
        let failure = agent.start(spec).await.unwrap_err();
        assert!(failure.message.contains(expected), "{failure}");
    }
    assert!(!Path::new("/etc/made-by-a-link").exists());
}

#[tokio::test]
async fn who_asks_to_be_somebody_is() {
    if !has_views() || !rustix::process::geteuid().is_root() {
        return;
    }
    let bed = Bed::new();
    let data = bed.dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let agent = bed.agent().await;
    for (name, user, expected) in [
        (
            "user",
            User { id: Some(4242), group: Some(4343), groups: vec![4444], is_not_root: true },
            "4242 4343 4343 4444",
        ),
        ("plain", User { id: Some(4242), ..User::default() }, "4242 0 0"),
        ("nobody", User { is_not_root: true, ..User::default() }, "65534 65534 65534"),
        ("root", User::default(), "0 0 0"),
    ] {
        let script = "echo who $(id -u) $(id -g) $(id -G); echo again > /dev/stdout; touch /data-user/$(id -u) here; \
                      cat /proc/self/status | grep CapEff; echo ready; sleep 600";
        let mut spec = bed.spec(name, script);
        spec.user = user;
        spec.mounts = vec![mount(&bed, "data", "/data-user", false)];
        agent.start(spec.clone()).await.unwrap();
        line(&bed, &spec, "ready").await;
        assert_eq!(
            line(&bed, &spec, "who").await.split(' ').take(3).collect::<Vec<_>>(),
            expected.split(' ').take(3).collect::<Vec<_>>()
        );
        let said = bed.log(&spec);
        assert!(expected.split(' ').all(|part| said[0].contains(part)), "{said:?}");
        assert!(said.contains(&"again".to_owned()), "{said:?}");
        let is_root = name == "root";
        assert_eq!(is_root, !said.iter().any(|line| line == "CapEff:\t0000000000000000"), "{said:?}");
        let owner = fs::metadata(data.join(expected.split(' ').next().unwrap())).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner).to_string(), expected.split(' ').next().unwrap());
        assert!(bed.dir.path().join(format!("keeper/roots/uid-{name}/c/here")).exists());
        let command = ["sh", "-c", "echo $(id -u) $(id -g) > /dev/stdout"].map(str::to_owned);
        let output = agent.exec(&spec.id, &command, Duration::from_secs(20)).await.unwrap();
        assert!(expected.starts_with(String::from_utf8_lossy(&output.text).trim()), "{output:?}");
        agent.signal(&spec.id, 9).await.unwrap();
        assert_eq!(exit_of(&agent, &spec.id).await.code, 137);
    }
}
