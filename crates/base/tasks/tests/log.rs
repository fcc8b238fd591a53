//! What is logged of a panic.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use selvedge_tasks::{record_locations, spawn_short};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_panic_is_logged_with_its_task_message_and_place() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    record_locations();
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ended =
            runtime.block_on(async { spawn_short("log-panics", async { panic!("the disk is {}", "gone") }).await });
        assert!(ended.unwrap_err().is_panic());
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for part in ["ERROR", "a task panicked", "task=\"log-panics\"", "panic=\"the disk is gone\"", "tests/log.rs:"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}
