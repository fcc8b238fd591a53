//! Burns CPU and memory when asked: `/burn?cpu=500&memory=64&seconds=10` for half a core and 64 MiB during ten seconds.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Given,
    http::{self, Request, Response},
};

const PERIOD: Duration = Duration::from_millis(50);
/// More threads than this are no more load.
const CORES: u64 = 64;

/// What burns at the moment.
#[derive(Default)]
struct Fire {
    cpu_millis: AtomicU64,
    memory: Mutex<Vec<Vec<u8>>>,
    requests: AtomicU64,
}

pub fn run(given: &Given) -> Result<(), String> {
    let fire = Arc::new(Fire::default());
    let number = |name, variable| given.option(name, variable).map_or(Ok(0), str::parse::<u64>);
    let wrong = |_| "--cpu is in thousandths of a core and --memory in MiB".to_owned();
    let (cpu, memory) = (number("cpu", "BURN_CPU").map_err(wrong)?, number("memory", "BURN_MEMORY").map_err(wrong)?);
    fire.light(cpu, memory, None);
    let listener = given.listen()?;
    http::serve(&listener, move |request| fire.answer(request))
}

impl Fire {
    fn answer(self: &Arc<Self>, request: &Request) -> Response {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if request.path() == "/burn" {
            let number = |name: &str, otherwise: u64| request.query(name).map_or(Ok(otherwise), str::parse::<u64>);
            let (Ok(cpu), Ok(memory), Ok(seconds)) = (number("cpu", 0), number("memory", 0), number("seconds", 10))
            else {
                return Response::text("400 Bad Request", "cpu (thousandths), memory (MiB) and seconds are numbers\n");
            };
            if !self.light(cpu, memory, Some(Duration::from_secs(seconds.min(86400)))) {
                return Response::text("507 Insufficient Storage", "there is not so much memory\n");
            }
        }
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::len).sum::<usize>();
        let text = format!(
            "{{\"cpuMillis\":{},\"memoryMiB\":{},\"requests\":{}}}\n",
            self.cpu_millis.load(Ordering::Relaxed),
            memory >> 20,
            self.requests.load(Ordering::Relaxed)
        );
        Response { content_type: "application/json", ..Response::text("200 OK", text) }
    }

    /// Whether there was so much memory.
    fn light(self: &Arc<Self>, cpu: u64, memory: u64, during: Option<Duration>) -> bool {
        let until = during.map(|during| Instant::now() + during);
        let mut left = cpu.min(1000 * CORES);
        while left > 0 {
            let share = left.min(1000);
            left -= share;
            // Counted here: whoever asks at once shall not be told otherwise because the thread has not begun.
            self.cpu_millis.fetch_add(share, Ordering::Relaxed);
            let fire = self.clone();
            if thread::Builder::new().stack_size(64 << 10).spawn(move || fire.spin(share, until)).is_err() {
                self.cpu_millis.fetch_sub(share, Ordering::Relaxed);
            }
        }
        if memory == 0 {
            return true;
        }
        let Some(bytes) = usize::try_from(memory).ok().and_then(|memory| memory.checked_mul(1 << 20)) else {
            return false;
        };
        let mut block = Vec::new();
        if block.try_reserve_exact(bytes).is_err() {
            return false;
        }
        // Written, so that it is really there.
        block.resize(bytes, 1);
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(block);
        if let Some(during) = during {
            let fire = self.clone();
            let _ = thread::Builder::new().stack_size(64 << 10).spawn(move || {
                thread::sleep(during);
                let mut blocks = fire.memory.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(place) = blocks.iter().position(|block| block.len() == bytes) {
                    blocks.swap_remove(place);
                }
            });
        }
        true
    }

    fn spin(&self, millis: u64, until: Option<Instant>) {
        while until.is_none_or(|until| Instant::now() < until) {
            let begun = Instant::now();
            let busy = PERIOD * u32::try_from(millis).unwrap_or(1000) / 1000;
            while begun.elapsed() < busy {
                std::hint::spin_loop();
            }
            thread::sleep(PERIOD.saturating_sub(begun.elapsed()));
        }
        self.cpu_millis.fetch_sub(millis, Ordering::Relaxed);
    }
}
