use std::{
    io,
    sync::atomic::{AtomicBool, AtomicUsize},
};

use tokio::sync::mpsc;

use super::*;
use crate::{Counts, counts, inject_panic};

const RESTART: Schedule = Schedule::new(Duration::from_millis(100), Duration::from_secs(10)).exact();
const LIMIT: Duration = Duration::from_secs(30);

fn of(name: &str) -> Counts {
    counts().into_iter().find(|counts| counts.name == name).unwrap()
}

/// Keeps the type of a future that always panics.
fn false_now() -> bool {
    std::hint::black_box(false)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_made_anew_and_its_work_goes_on() {
    let tasks = Tasks::new();
    let (tell, mut told) = mpsc::unbounded_channel();
    let began = tokio::time::Instant::now();
    let mut times = 0;
    let handle = tasks.spawn_until_shutdown("group-panics", RESTART, move || {
        times += 1;
        let (tell, times) = (tell.clone(), times);
        async move {
            assert!(times > 3, "attempt {times}");
            tell.send(times).unwrap();
            std::future::pending::<()>().await;
        }
    });
    assert_eq!(told.recv().await, Some(4));
    assert_eq!(began.elapsed(), Duration::from_millis(100 + 200 + 400));
    assert_eq!(of("group-panics"), Counts { name: "group-panics", running: 1, panics: 3, restarts: 3 });
    assert_eq!((handle.failures(), handle.is_finished(), handle.name()), (3, false, "group-panics"));
    assert_eq!(tasks.stop(LIMIT).await, [""; 0]);
    assert_eq!((of("group-panics").running, told.recv().await), (0, None), "the future was dropped at the shutdown");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_treated_as_a_panic_and_a_long_run_forgives() {
    let tasks = Tasks::new();
    let (tell, mut told) = mpsc::unbounded_channel();
    let handle = tasks.spawn_restarting("group-errors", RESTART, move || {
        tell.send(tokio::time::Instant::now()).unwrap();
        async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Err::<(), _>(io::Error::other("no disk"))
        }
    });
    let mut last = told.recv().await.unwrap();
    for _ in 0..3 {
        let now = told.recv().await.unwrap();
        assert_eq!(now - last, Duration::from_secs(20) + Duration::from_millis(100));
        last = now;
    }
    assert_eq!(handle.failures(), 1);
    assert_eq!(of("group-errors"), Counts { name: "group-errors", running: 1, panics: 0, restarts: 3 });
    handle.abort();
    assert_eq!(tasks.stop(LIMIT).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_well_stays_ended_and_a_waiting_one_sees_the_shutdown() {
    let tasks = Tasks::new();
    let handle = tasks.spawn_restarting("group-ends", RESTART, || async {});
    tasks.spawn_restarting("group-waits", RESTART, || async { assert!(false_now(), "again") });
    while !handle.is_finished() {
        tokio::task::yield_now().await;
    }
    assert_eq!((of("group-ends").restarts, tasks.running()), (0, vec!["group-waits"]));
    assert_eq!(tasks.stop(LIMIT).await, [""; 0]);
}

#[tokio::test]
async fn a_factory_that_panics_is_caught_too() {
    let tasks = Tasks::new();
    let was_called = AtomicBool::new(false);
    let handle = tasks.spawn_restarting("group-factory", RESTART, move || {
        assert!(was_called.swap(true, Relaxed), "the first call");
        async {}
    });
    while !handle.is_finished() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((of("group-factory").panics, of("group-factory").restarts), (1, 1));
}

#[tokio::test]
async fn the_end_of_a_critical_task_is_told_however_it_ends() {
    let tell = |tasks: Tasks| async move { tokio::time::timeout(LIMIT, tasks.failed()).await.unwrap().reason };
    let tasks = Tasks::new();
    tasks.spawn_critical("group-critical", async { assert!(false_now(), "broken") });
    assert_eq!(tell(tasks).await, "it panicked: broken");
    let tasks = Tasks::new();
    tasks.spawn_critical("group-critical", async {});
    assert_eq!(tell(tasks).await, "it returned");
    let tasks = Tasks::new();
    let inner = tasks.group();
    inner.spawn_critical("group-critical", async { Err::<(), _>("no disk") });
    let failure = tokio::time::timeout(LIMIT, tasks.failed()).await.unwrap();
    assert_eq!(failure, Failure { task: "group-critical", reason: "no disk".into() });
    assert!(failure.to_string().contains("task group-critical"), "{failure}");
}

#[tokio::test]
async fn a_critical_task_may_end_at_the_shutdown() {
    let tasks = Tasks::new();
    let mut stop = tasks.shutdown();
    tasks.spawn_critical("group-critical-stops", async move {
        let _ = stop.wait_for(|stop| *stop).await;
    });
    assert_eq!(tasks.stop(LIMIT).await, [""; 0]);
    assert!(tokio::time::timeout(Duration::ZERO, tasks.failed()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn tasks_that_do_not_end_are_named_and_aborted() {
    let (tasks, ended) = (Tasks::new(), Arc::new(AtomicUsize::new(0)));
    let inner = tasks.group();
    for (tasks, name) in [(&tasks, "group-hangs"), (&inner, "group-hangs-within"), (&inner, "group-hangs-within")] {
        let mut stop = tasks.shutdown();
        tasks.spawn_restarting(name, RESTART, std::future::pending::<()>);
        let ended = ended.clone();
        tasks.spawn_once("group-stops", async move {
            let _ = stop.wait_for(|stop| *stop).await;
            ended.fetch_add(1, Relaxed);
        });
    }
    assert_eq!(tasks.stop(LIMIT).await, ["group-hangs", "group-hangs-within"]);
    assert_eq!(ended.load(Relaxed), 3);
    assert_eq!(tasks.stop(LIMIT).await, [""; 0], "they were aborted");
    assert_eq!((of("group-hangs").running, of("group-hangs-within").running), (0, 0));
}

#[tokio::test]
async fn a_group_within_stops_alone_and_with_its_parent() {
    let tasks = Tasks::new();
    let (first, second) = (tasks.group(), tasks.group());
    let wait = |tasks: &Tasks| tasks.spawn_once("group-within", tasks.until_shutdown(std::future::pending::<()>()));
    let (one, two) = (wait(&first), wait(&second));
    assert_eq!(first.stop(LIMIT).await, [""; 0]);
    assert_eq!((one.await.unwrap(), second.is_stopping()), (None, false));
    assert_eq!(tasks.stop(LIMIT).await, [""; 0]);
    assert_eq!((two.await.unwrap(), tasks.group().is_stopping()), (None, true));
}

#[tokio::test]
async fn a_group_follows_a_signal_from_elsewhere() {
    let (signal, followed) = watch::channel(false);
    let tasks = Tasks::following(followed);
    let task = tasks.spawn_once("group-follows", tasks.until_shutdown(std::future::pending::<()>()));
    signal.send_replace(true);
    assert_eq!(tokio::time::timeout(LIMIT, task).await.unwrap().unwrap(), None);
    let (signal, followed) = watch::channel(false);
    let tasks = Tasks::following(followed);
    drop(signal);
    tokio::time::timeout(LIMIT, tasks.shutdown().wait_for(|stop| *stop)).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_panic_of_a_task_that_runs_once_is_told_to_its_owner() {
    let tasks = Tasks::new();
    inject_panic("group-once", 1);
    assert!(tasks.spawn_once("group-once", async { 7 }).await.unwrap_err().is_panic());
    assert_eq!(tasks.spawn_once("group-once", async { 7 }).await.unwrap(), 7);
    assert_eq!((of("group-once").panics, tasks.running()), (1, vec![]));
}
