//! The log itself: one line per event, written by a thread of its own, into files that are rotated.
//!
//! What waits to be written is bounded. When the disk is slower than what happens, a request waits for room a short time,
//! and then its event is dropped and counted: the log must not be able to stop the server.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Clone, Debug)]
pub struct Options {
    /// `-` is the standard output.
    pub path: PathBuf,
    /// Megabytes of a file before a new one is begun; days and number of old files that are kept. 0 is without end.
    pub max_size: u64,
    pub max_age: u64,
    pub max_backup: usize,
    /// Kilobytes that may wait to be written.
    pub buffer: usize,
}

/// How long a request waits for room.
const PATIENCE: Duration = Duration::from_millis(100);

pub struct Log {
    lines: mpsc::Sender<Line>,
    room: Arc<Semaphore>,
    most: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub written: Arc<AtomicU64>,
    pub lost: Arc<AtomicU64>,
}

enum Line {
    Event(Value, OwnedSemaphorePermit),
    End,
}

impl Log {
    pub fn open(options: Options) -> io::Result<Self> {
        let (lines, queue) = mpsc::channel();
        let room = Arc::new(Semaphore::new(options.buffer));
        let (written, lost) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let most = options.buffer;
        let mut writer = Writer { out: Out::open(options)?, written: written.clone(), lost: lost.clone(), ill: false };
        let thread = std::thread::Builder::new().name("audit-log".into()).spawn(move || writer.run(&queue))?;
        Ok(Self { lines, room, most, thread: Mutex::new(Some(thread)), written, lost })
    }

    /// Takes an event, of about so many bytes, as soon as there is room.
    pub async fn take(&self, event: Value, bytes: usize) {
        let wanted = self.wanted(bytes);
        let room = match self.room.clone().try_acquire_many_owned(wanted) {
            Ok(room) => Some(room),
            Err(_) => {
                let wait = tokio::time::timeout(PATIENCE, self.room.clone().acquire_many_owned(wanted));
                wait.await.ok().and_then(Result::ok)
            }
        };
        self.put(event, room);
    }

    /// The same where nobody can wait.
    pub fn take_now(&self, event: Value, bytes: usize) {
        let room = self.room.clone().try_acquire_many_owned(self.wanted(bytes)).ok();
        self.put(event, room);
    }

    fn wanted(&self, bytes: usize) -> u32 {
        u32::try_from((1 + bytes / 1024).min(self.most)).unwrap_or(u32::MAX)
    }

    fn put(&self, event: Value, room: Option<OwnedSemaphorePermit>) {
        let sent = room.is_some_and(|room| self.lines.send(Line::Event(event, room)).is_ok());
        if !sent {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Writes what waits. A disk that does not answer is not waited for without end.
    pub async fn close(&self) {
        let _ = self.lines.send(Line::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = || thread.as_ref().is_none_or(JoinHandle::is_finished);
        for _ in 0..200 {
            if ended() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tracing::warn!("the audit log could not be written to its end");
    }
}

struct Writer {
    out: Out,
    written: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    ill: bool,
}

impl Writer {
    fn run(&mut self, queue: &mpsc::Receiver<Line>) {
        // Everything that waits goes into one write.
        let mut batch = Vec::new();
        while let Ok(first) = queue.recv() {
            let (mut count, mut end) = (0, false);
            let mut room = Vec::new();
            for line in std::iter::once(first).chain(queue.try_iter()) {
                let Line::Event(event, held) = line else {
                    end = true;
                    break;
                };
                if serde_json::to_writer(&mut batch, &event).is_ok() {
                    batch.push(b'\n');
                    count += 1;
                }
                room.push(held);
                if batch.len() > 1 << 20 {
                    break;
                }
            }
            match self.out.write(&batch) {
                Ok(()) => {
                    self.written.fetch_add(count, Relaxed);
                    self.ill = false;
                }
                Err(error) => {
                    self.lost.fetch_add(count, Relaxed);
                    if !std::mem::replace(&mut self.ill, true) {
                        tracing::error!(%error, path = %self.out.options.path.display(), "the audit log cannot be written; events are lost until it can");
                    }
                }
            }
            batch.clear();
            if end {
                return;
            }
        }
    }
}

/// How many of these bytes are whole lines that fit into the room.
fn whole_lines(lines: &[u8], room: u64) -> usize {
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    if lines.len() <= room {
        return lines.len();
    }
    lines[..room].iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1)
}

fn first_line(lines: &[u8]) -> usize {
    lines.iter().position(|b| *b == b'\n').map_or(lines.len(), |end| end + 1)
}

/// The file that is being written, and its predecessors.
struct Out {
    options: Options,
    file: Option<File>,
    size: u64,
}

impl Out {
    fn open(options: Options) -> io::Result<Self> {
        let mut out = Self { options, file: None, size: 0 };
        out.reopen()?;
        Ok(out)
    }

    fn is_stdout(&self) -> bool {
        self.options.path == Path::new("-")
    }

    fn reopen(&mut self) -> io::Result<()> {
        if self.is_stdout() {
            return Ok(());
        }
        if let Some(dir) = self.options.path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            fs::create_dir_all(dir)?;
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.options.path)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_stdout() {
            return io::stdout().lock().write_all(lines);
        }
        let limit = match self.options.max_size << 20 {
            0 => u64::MAX,
            limit => limit,
        };
        let mut rest = lines;
        while !rest.is_empty() {
            let mut fits = whole_lines(rest, limit.saturating_sub(self.size));
            if fits == 0 && self.size > 0 {
                self.rotate(SystemTime::now())?;
                fits = whole_lines(rest, limit.saturating_sub(self.size));
            }
            // One line that is larger than any file may be has a file of its own.
            let (now, later) = rest.split_at(if fits == 0 { first_line(rest) } else { fits });
            self.append(now)?;
            rest = later;
        }
        Ok(())
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.reopen()?;
        }
        if let Some(file) = &mut self.file {
            // A line that was begun and not ended would spoil the next one.
            if let Err(error) = file.write_all(lines) {
                let _ = file.set_len(self.size);
                self.file = None;
                return Err(error);
            }
            self.size += lines.len() as u64;
        }
        Ok(())
    }

    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        self.file = None;
        fs::rename(&self.options.path, self.old_name(now))?;
        self.reopen()?;
        let mut old = self.old_files()?;
        old.sort();
        let too_many = if self.options.max_backup == 0 { 0 } else { old.len().saturating_sub(self.options.max_backup) };
        let oldest = Duration::from_secs(self.options.max_age * 24 * 60 * 60);
        for (n, path) in old.iter().enumerate() {
            let age =
                fs::metadata(path).and_then(|meta| meta.modified()).ok().and_then(|at| now.duration_since(at).ok());
            if n < too_many || (self.options.max_age > 0 && age.is_some_and(|age| age > oldest)) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// `audit.log` → `audit-2026-01-02T03-04-05.678901234.log`, which sorts by time.
    fn old_name(&self, now: SystemTime) -> PathBuf {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = clock::at(since.as_secs() as i64).replace(':', "-");
        let (stem, ext) = self.name();
        let name = format!("{stem}-{}.{:09}{ext}", at.trim_end_matches('Z'), since.subsec_nanos());
        self.options.path.with_file_name(name)
    }

    fn name(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| part.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
        let ext = text(self.options.path.extension());
        (text(self.options.path.file_stem()), if ext.is_empty() { ext } else { format!(".{ext}") })
    }

    fn old_files(&self) -> io::Result<Vec<PathBuf>> {
        let (stem, ext) = self.name();
        let dir = self.options.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let is_old = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let at = name.strip_prefix(&format!("{stem}-")).and_then(|rest| rest.strip_suffix(&*ext));
            at.is_some_and(|at| {
                at.len() == "2026-01-02T03-04-05.678901234".len() && at.as_bytes().get(10) == Some(&b'T')
            })
        };
        Ok(fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path())).filter(is_old).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(path: PathBuf) -> Options {
        Options { path, max_size: 1, max_age: 0, max_backup: 2, buffer: 10_000 }
    }

    #[test]
    fn many_lines_at_once_are_spread_over_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut out = Out::open(Options { max_backup: 0, ..options(dir.path().join("audit.log")) }).unwrap();
        let line = [vec![b'x'; 300_000], vec![b'\n']].concat();
        let large = [vec![b'y'; 2 << 20], vec![b'\n']].concat();
        out.write(&[line.repeat(9), large.clone(), line.clone()].concat()).unwrap();
        let mut sizes: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).collect();
        sizes.sort_unstable();
        let line = line.len() as u64;
        assert_eq!(sizes, [line, 3 * line, 3 * line, 3 * line, large.len() as u64]);
    }

    #[tokio::test]
    async fn lines_are_whole_and_files_rotate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/audit.log");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path.with_file_name("audit-notes.log"), "not ours").unwrap();
        let mut out = Out::open(options(path.clone())).unwrap();
        let line = format!("{}\n", "x".repeat(300_000));
        for _ in 0..14 {
            out.write(line.as_bytes()).unwrap();
        }
        assert_eq!(out.old_files().unwrap().len(), 2, "older ones are gone");
        assert!(path.with_file_name("audit-notes.log").exists(), "what only looks alike stays");
        for file in out.old_files().unwrap().iter().chain([&path]) {
            let size = fs::metadata(file).unwrap().len();
            assert!(size <= 1 << 20 && size % line.len() as u64 == 0, "{size}");
        }
        let log = Log::open(options(path.clone())).unwrap();
        for n in 0..100 {
            log.take(serde_json::json!({"n": n}), 10).await;
        }
        log.close().await;
        assert_eq!((log.written.load(Relaxed), log.lost.load(Relaxed)), (100, 0));
        assert!(fs::read_to_string(&path).unwrap().ends_with("{\"n\":98}\n{\"n\":99}\n"));
    }

    #[tokio::test]
    async fn a_log_that_does_not_move_loses_events_and_not_time() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(Options { buffer: 3, ..options(dir.path().join("a")) }).unwrap();
        let all = log.room.clone().acquire_many_owned(3).await.unwrap();
        let begun = std::time::Instant::now();
        log.take(serde_json::json!({}), 10).await;
        log.take_now(serde_json::json!({}), 10);
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert_eq!(log.lost.load(Relaxed), 2);
        drop(all);
        log.take(serde_json::json!({}), 1 << 30).await;
        log.close().await;
        assert_eq!(log.written.load(Relaxed), 1, "even one that is larger than all the room");
    }
}
