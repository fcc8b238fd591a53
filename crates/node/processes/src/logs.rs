//! What containers write, line by line into files that stay below a size.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// A longer line comes in pieces.
const LONGEST: usize = 16 << 10;

/// How much of logs is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Of one file.
    pub bytes: u64,
    /// The one that is written and those before it.
    pub files: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// What was written since the last end of a line.
#[derive(Debug, Default)]
struct Begun(Vec<u8>);

impl Begun {
    /// Lines that are whole now go to `to`.
    fn push(&mut self, bytes: &[u8], stream: Stream, now: &str, to: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.0.extend_from_slice(piece);
            let mut text: &[u8] = &self.0;
            let is_whole = text.last() == Some(&b'\n');
            if is_whole {
                text = &text[..text.len() - 1];
            }
            while text.len() > LONGEST {
                let (first, rest) = text.split_at(LONGEST);
                line(stream, 'P', first, now, to);
                text = rest;
            }
            if is_whole {
                line(stream, 'F', text, now, to);
                self.0.clear();
            } else if text.len() < self.0.len() {
                self.0 = text.to_vec();
            }
        }
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }

    fn end(&mut self, stream: Stream, now: &str, to: &mut Vec<u8>) {
        let text = std::mem::take(&mut self.0);
        if !text.is_empty() {
            line(stream, 'P', &text, now, to);
        }
    }
}

fn line(stream: Stream, tag: char, text: &[u8], now: &str, to: &mut Vec<u8>) {
    // Writing into memory cannot fail.
    let _ = write!(to, "{now} {} {tag} ", stream.name());
    to.extend_from_slice(text);
    to.push(b'\n');
}

/// The log of one run of a container.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    bounds: Bounds,
    stdout: Begun,
    stderr: Begun,
    /// Lines that the disk had no room for.
    lost: usize,
}

impl Log {
    /// Goes on with what is there.
    pub fn open(path: &Path, bounds: Bounds) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let file = open(path)?;
        let size = file.metadata()?.len();
        let (stdout, stderr) = (Begun::default(), Begun::default());
        Ok(Self { path: path.to_owned(), file, size, bounds, stdout, stderr, lost: 0 })
    }

    pub fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let (now, mut lines) = (now(), Vec::new());
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
        .push(bytes, stream, &now, &mut lines);
        self.append(&lines);
    }

    /// Nothing more will come.
    pub fn end(&mut self) {
        let (now, mut lines) = (now(), Vec::new());
        self.stdout.end(Stream::Stdout, &now, &mut lines);
        self.stderr.end(Stream::Stderr, &now, &mut lines);
        self.append(&lines);
    }

    /// A disk that is full stops nobody: lines are counted and the loss is told when there is room again.
    fn append(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        if self.size > 0 && self.size + lines.len() as u64 > self.bounds.bytes {
            self.turn_over();
        }
        let mut told = Vec::new();
        if self.lost > 0 {
            let text = format!("selvedge: {} lines were lost, as the disk was full", self.lost);
            line(Stream::Stderr, 'F', text.as_bytes(), &now(), &mut told);
        }
        told.extend_from_slice(lines);
        match self.file.write_all(&told) {
            Ok(()) => {
                self.size += told.len() as u64;
                self.lost = 0;
            }
            Err(_) => {
                // What got through of it would be half a line.
                let _ = self.file.set_len(self.size);
                self.lost += lines.iter().filter(|byte| **byte == b'\n').count();
            }
        }
    }

    fn turn_over(&mut self) {
        for number in (1..self.bounds.files.saturating_sub(1)).rev() {
            let _ = fs::rename(numbered(&self.path, number), numbered(&self.path, number + 1));
        }
        if self.bounds.files > 1 {
            let _ = fs::rename(&self.path, numbered(&self.path, 1));
        } else {
            let _ = fs::remove_file(&self.path);
        }
        match open(&self.path) {
            Ok(file) => (self.file, self.size) = (file, 0),
            // Better a file that grows than lines that are lost.
            Err(_) => _ = fs::rename(numbered(&self.path, 1), &self.path),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// RFC 3339 with all nine digits, so that lines sort.
pub fn now() -> String {
    format!("{:.9}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { bytes: 200, files: 3 };

    fn fed(pieces: &[&[u8]]) -> String {
        let (mut begun, mut lines) = (Begun::default(), Vec::new());
        for piece in pieces {
            begun.push(piece, Stream::Stdout, "T", &mut lines);
        }
        begun.end(Stream::Stdout, "T", &mut lines);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn lines_however_they_come() {
        for (pieces, expected) in [
            (&[b"one\ntwo\n".as_slice()][..], "T stdout F one\nT stdout F two\n"),
            (&[b"o", b"ne", b"\n"], "T stdout F one\n"),
            (&[b"\n\n"], "T stdout F \nT stdout F \n"),
            (&[b"one\n>"], "T stdout F one\nT stdout P >\n"),
            (&[], ""),
        ] {
            assert_eq!(fed(pieces), expected);
        }
    }

    #[test]
    fn a_long_line_comes_in_pieces() {
        for length in [LONGEST - 1, LONGEST, LONGEST + 1, 3 * LONGEST] {
            let mut text = vec![b'x'; length];
            text.push(b'\n');
            for pieces in [vec![text.as_slice()], text.chunks(1000).collect()] {
                let lines = fed(&pieces);
                let joined: String = lines.lines().map(|line| &line[11..]).collect();
                assert_eq!(joined.len(), length);
                assert!(lines.lines().all(|line| line.len() <= LONGEST + 11));
                assert_eq!(lines.matches(" F ").count(), 1, "{length}");
            }
        }
    }

    #[test]
    fn stays_below_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pod/c/0.log");
        let mut log = Log::open(&path, BOUNDS).unwrap();
        for number in 0..50 {
            log.write(Stream::Stdout, format!("line {number}\n").as_bytes());
        }
        log.write(Stream::Stderr, b"no end");
        log.end();
        let files: Vec<String> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(files.len(), 3, "{files:?}");
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let all = [numbered(&path, 2), numbered(&path, 1), path.clone()].map(|path| read(&path));
        assert!(all.iter().all(|text| text.len() <= 200 && text.ends_with('\n')), "{all:?}");
        let said: Vec<String> =
            all.concat().lines().map(|line| line.splitn(4, ' ').nth(3).unwrap().to_owned()).collect();
        let expected: Vec<String> = (50 + 1 - said.len()..50).map(|n| format!("line {n}")).collect();
        assert_eq!(said[..said.len() - 1], expected);
        assert_eq!(said.last().unwrap(), "no end");
    }

    #[test]
    fn goes_on_with_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for text in ["one\n", "two\n"] {
            Log::open(&path, BOUNDS).unwrap().write(Stream::Stdout, text.as_bytes());
        }
        let text = fs::read_to_string(&path).unwrap();
        let stamp = text.split(' ').next().unwrap();
        assert_eq!(stamp.len(), "2026-01-01T00:00:00.000000000Z".len(), "{stamp}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn a_full_disk_loses_whole_lines_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::open(&path, BOUNDS).unwrap();
        log.write(Stream::Stdout, b"before\n");
        let good = std::mem::replace(&mut log.file, OpenOptions::new().write(true).open("/dev/full").unwrap());
        log.write(Stream::Stdout, b"a\nb\n");
        log.write(Stream::Stdout, b"c\n");
        log.file = good;
        log.write(Stream::Stdout, b"after\n");
        let text = fs::read_to_string(&path).unwrap();
        let said: Vec<&str> = text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap()).collect();
        assert_eq!(said, ["before", "selvedge: 3 lines were lost, as the disk was full", "after"]);
    }
}
