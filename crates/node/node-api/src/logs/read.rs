//! Reads a log from file to file, and goes on while its container does.

use std::{
    io::{self, SeekFrom},
    os::unix::fs::MetadataExt,
    path::Path,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncSeekExt},
    sync::watch,
};

use super::{
    Sender,
    files::{self, Part},
    line::Picker,
    notice::Notice,
    options::Options,
};

const BLOCK: usize = 64 << 10;
/// A line that is longer is shown in parts.
const LONGEST_LINE: usize = 1 << 20;

/// Sends what is asked for. With `follow` it ends when the container has ended and all is sent, or when nobody listens: `runs` changes
/// when `goes_on` may say something else. While nothing is written nothing is done.
pub async fn send(
    log: &Path,
    options: &Options,
    goes_on: impl Fn() -> bool,
    mut runs: watch::Receiver<u64>,
    to: &Sender,
) -> io::Result<()> {
    // Before anything is read, so that nothing is written unnoticed after it.
    let notice = options.follow.then(|| Notice::of(log));
    let (parts, first, offset) = begin(log, options).await?;
    let mut reading = Reading { picker: options.picker(), unfinished: Vec::new(), to };
    let mut last = None;
    for (at, part) in parts.into_iter().enumerate().skip(first) {
        let mut file = tokio::fs::File::from_std(part.file);
        file.seek(SeekFrom::Start(if at == first { offset } else { 0 })).await?;
        if !reading.until_end(&mut file).await? {
            return Ok(());
        }
        last = Some((file, part.inode));
    }
    let Some(notice) = notice else { return reading.rest().await.map(|_| ()) };
    loop {
        runs.borrow_and_update();
        // Asked before it is read for the last time: what was written before the end is there then.
        let is_last = !goes_on();
        let more = match &mut last {
            Some((file, _)) => reading.some(file).await?,
            None => More::Nothing,
        };
        match more {
            More::NobodyListens => return Ok(()),
            More::Some => continue,
            More::Nothing => {}
        }
        if let Some(next) = next(log, last.as_ref().map(|(_, inode)| *inode)).await? {
            // What was written between the last look and the change of files.
            if let Some((file, _)) = &mut last
                && !reading.until_end(file).await?
            {
                return Ok(());
            }
            last = Some((tokio::fs::File::from_std(next.file), next.inode));
            continue;
        }
        if is_last {
            return reading.rest().await.map(|_| ());
        }
        tokio::select! {
            () = notice.written() => {}
            // Without anybody who knows, what is written last is still noticed.
            Ok(()) = runs.changed() => {}
            () = to.closed() => return Ok(()),
        }
    }
}

/// The parts of a log, which of them to begin with, and where.
async fn begin(log: &Path, options: &Options) -> io::Result<(Vec<Part>, usize, u64)> {
    let (log, lines, stream) = (log.to_owned(), options.tail, options.stream);
    blocking(move || {
        let mut parts = files::open(&log)?;
        let (first, offset) = match lines {
            Some(lines) => files::tail(&mut parts, lines, stream)?,
            None => (0, 0),
        };
        Ok((parts, first, offset))
    })
    .await
}

/// The file that was begun after this one, if there is one.
async fn next(log: &Path, inode: Option<u64>) -> io::Result<Option<Part>> {
    let log = log.to_owned();
    blocking(move || {
        let newest = match std::fs::metadata(&log) {
            Ok(newest) => newest.ino(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if inode == Some(newest) {
            return Ok(None);
        }
        Ok(files::after(&log, inode.unwrap_or_default())?.into_iter().next())
    })
    .await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tasks::spawn_blocking("read-log", work).await.map_err(io::Error::other)?
}

enum More {
    Some,
    Nothing,
    NobodyListens,
}

struct Reading<'a> {
    picker: Picker,
    /// The beginning of a line whose end is not written yet.
    unfinished: Vec<u8>,
    to: &'a Sender,
}

impl Reading<'_> {
    /// False: nobody wants more.
    async fn until_end(&mut self, file: &mut tokio::fs::File) -> io::Result<bool> {
        loop {
            match self.some(file).await? {
                More::Some => {}
                More::Nothing => return Ok(true),
                More::NobodyListens => return Ok(false),
            }
        }
    }

    async fn some(&mut self, file: &mut tokio::fs::File) -> io::Result<More> {
        let mut block = vec![0; BLOCK];
        let read = file.read(&mut block).await?;
        if read == 0 {
            return Ok(More::Nothing);
        }
        let (mut out, mut wanted) = (Vec::new(), true);
        let mut rest = &block[..read];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n').filter(|_| wanted) {
            let (line, behind) = (&rest[..end], &rest[end + 1..]);
            if self.unfinished.is_empty() {
                wanted = self.picker.pick(line, &mut out);
            } else {
                self.unfinished.extend_from_slice(line);
                wanted = self.picker.pick(&self.unfinished, &mut out);
                self.unfinished.clear();
            }
            rest = behind;
        }
        self.unfinished.extend_from_slice(rest);
        if self.unfinished.len() > LONGEST_LINE {
            self.unfinished.clear();
        }
        let is_heard = out.is_empty() || self.to.send(Ok(Bytes::from(out))).await.is_ok();
        Ok(if is_heard && wanted { More::Some } else { More::NobodyListens })
    }

    /// A last line without an end.
    async fn rest(&mut self) -> io::Result<bool> {
        let mut out = Vec::new();
        let line = std::mem::take(&mut self.unfinished);
        self.picker.pick(&line, &mut out);
        Ok(out.is_empty() || self.to.send(Ok(Bytes::from(out))).await.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };

    use tokio::sync::mpsc;

    use super::*;

    fn line(text: &str) -> String {
        format!("2026-01-02T03:04:05.000000000Z stdout F {text}\n")
    }

    async fn all(log: &Path, options: Options) -> String {
        let (to, mut from) = mpsc::channel(100);
        send(log, &options, || false, watch::channel(0).1, &to).await.unwrap();
        drop(to);
        let mut text = Vec::new();
        while let Some(piece) = from.recv().await {
            text.extend(piece.unwrap());
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn from_the_oldest_to_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        std::fs::write(dir.path().join("0.log.1"), line("a") + &line("b")).unwrap();
        std::fs::write(&log, line("c") + "2026-01-02T03:04:05.000000000Z stdout F torn").unwrap();
        assert_eq!(all(&log, Options::default()).await, "a\nb\nc\ntorn\n");
        assert_eq!(all(&log, Options { follow: true, ..Options::default() }).await, "a\nb\nc\ntorn\n");
        assert_eq!(all(&log, Options { tail: Some(3), ..Options::default() }).await, "b\nc\ntorn\n");
        assert_eq!(all(&log, Options { tail: Some(3), limit: Some(3), ..Options::default() }).await, "b\nc");
        assert_eq!(all(&dir.path().join("none.log"), Options::default()).await, "");
    }

    #[tokio::test]
    async fn following_across_rotations_until_the_container_ends() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let (running, (to, mut from)) = (Arc::new(AtomicBool::new(true)), mpsc::channel(100));
        let (ended, runs) = watch::channel(0);
        let follower = tokio::spawn({
            let (log, running) = (log.clone(), running.clone());
            async move {
                let options = Options { follow: true, ..Options::default() };
                send(&log, &options, move || running.load(Ordering::SeqCst), runs, &to).await.unwrap();
            }
        });
        let mut seen = String::new();
        let mut expected = String::new();
        for round in 0..20 {
            // Some rounds write half a line, some change files between two looks, some twice.
            if round % 3 == 0 && round > 0 {
                std::fs::rename(dir.path().join("0.log.1"), dir.path().join("0.log.2")).ok();
                std::fs::rename(&log, dir.path().join("0.log.1")).unwrap();
            }
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&log).unwrap();
            let text = line(&format!("{round}"));
            let (half, rest) = text.split_at(10);
            file.write_all(half.as_bytes()).unwrap();
            tokio::task::yield_now().await;
            file.write_all(rest.as_bytes()).unwrap();
            expected.push_str(&format!("{round}\n"));
            if round % 2 == 0 {
                while seen.len() < expected.len() {
                    let piece = tokio::time::timeout(Duration::from_secs(10), from.recv()).await.unwrap();
                    seen.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
                }
                assert_eq!(seen, expected);
            }
        }
        running.store(false, Ordering::SeqCst);
        ended.send_replace(1);
        while let Some(piece) = from.recv().await {
            seen.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
        }
        assert_eq!(seen, expected);
        follower.await.unwrap();
    }

    #[tokio::test]
    async fn nobody_reads_for_somebody_who_left() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        std::fs::write(&log, line("a")).unwrap();
        let (to, mut from) = mpsc::channel(1);
        let options = Options { follow: true, ..Options::default() };
        let (_runs, runs) = watch::channel(0);
        let following = tokio::spawn(async move { send(&log, &options, || true, runs, &to).await });
        assert!(from.recv().await.is_some());
        drop(from);
        tokio::time::timeout(Duration::from_secs(10), following).await.unwrap().unwrap().unwrap();
    }
}
