//! Measures how much memory tasks take: `memory plain|short|once|restarting [number]`.

use std::{
    env,
    error::Error,
    fs,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use selvedge_tasks::{Kind, Schedule, Tasks, spawn_short};

static POLLED: AtomicU64 = AtomicU64::new(0);
static SESSION: Kind = Kind::new("session");
const RESTART: Schedule = Schedule::new(Duration::from_secs(1), Duration::from_secs(60));

fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Anonymous:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

async fn session<const BYTES: usize>() {
    POLLED.fetch_add(1, Relaxed);
    let kept = [1_u8; BYTES];
    std::future::pending::<()>().await;
    std::hint::black_box(kept);
}

fn spawn<const BYTES: usize>(how: &str, tasks: &Tasks) -> Result<(), Box<dyn Error>> {
    match how {
        "plain" => drop(tokio::spawn(session::<BYTES>())),
        "short" => drop(spawn_short(&SESSION, session::<BYTES>())),
        "once" => drop(tasks.spawn_once(&SESSION, session::<BYTES>())),
        "restarting" => drop(tasks.spawn_restarting(&SESSION, RESTART, session::<BYTES>)),
        other => return Err(format!("{other:?} is no way to start a task").into()),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::print_stdout)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let how = arguments.next().unwrap_or_else(|| "short".to_owned());
    let number: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let (tasks, mut started) = (Tasks::new(), 0);
    for (bytes, start) in [(100, spawn::<100> as fn(&str, &Tasks) -> _), (1000, spawn::<1000>), (4000, spawn::<4000>)] {
        let before = anonymous();
        for _ in 0..number {
            start(&how, &tasks)?;
        }
        started += number;
        while POLLED.load(Relaxed) < started {
            tokio::task::yield_now().await;
        }
        println!("{how}: a task with {bytes} bytes takes {}", (anonymous() - before) / number);
    }
    Ok(())
}
