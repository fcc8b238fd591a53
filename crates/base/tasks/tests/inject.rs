//! A panic that the environment asks for, in a process of its own.

use std::{process::Command, time::Duration};

use selvedge_tasks::{PANIC_VARIABLE, Schedule, Tasks, counts};

const RESTART: Schedule = Schedule::new(Duration::from_millis(1), Duration::from_millis(10));
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_task_that_the_environment_names_panics_once_and_goes_on() {
    for (asked, expected) in [("", "0 0"), ("inject-other", "0 0"), ("inject-other,inject-named:2", "1 1")] {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program);
        child.args(["--exact", "child", "--include-ignored", "--nocapture"]).env(PANIC_VARIABLE, asked);
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{asked:?}: {text}");
        assert!(text.contains(&format!("counted {expected}.")), "{asked:?}: {text}");
    }
}

#[tokio::test]
#[ignore = "run by the test above, with the variable set"]
async fn child() {
    let tasks = Tasks::new();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    tasks.spawn_until_shutdown("inject-named", RESTART, move || {
        let tell = tell.clone();
        async move {
            tokio::task::yield_now().await;
            tell.send(()).ok();
            std::future::pending::<()>().await;
        }
    });
    tokio::time::timeout(LIMIT, told.recv()).await.unwrap().unwrap();
    let counted = counts().into_iter().find(|counts| counts.name == "inject-named").unwrap();
    println!("counted {} {}.", counted.panics, counted.restarts);
    assert!(tasks.stop(LIMIT).await.is_empty());
}
