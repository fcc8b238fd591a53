//! The files of one log: what was written before lies beside it as `<file>.1`, `<file>.2`, the older the higher.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::line::{Line, Stream};

/// A line is no longer than this; what is longer is taken for several.
const LONGEST_LINE: usize = 1 << 20;
const BLOCK: usize = 64 << 10;

/// One of them, open: it stays the same file whatever becomes of its name.
#[derive(Debug)]
pub struct Part {
    pub file: File,
    pub inode: u64,
}

impl Part {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Self { file, inode })
    }
}

/// All there are, oldest first. The newest is opened first: if they are renamed meanwhile, one is met twice and none is missed.
pub fn open(log: &Path) -> io::Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    let older = older(log);
    for path in std::iter::once(log).chain(older.iter().map(PathBuf::as_path)) {
        match Part::open(path) {
            Ok(part) if parts.iter().any(|known| known.inode == part.inode) => {}
            Ok(part) => parts.push(part),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    parts.reverse();
    Ok(parts)
}

/// What was written after the file with this inode, oldest first; everything if it is not there any more.
pub fn after(log: &Path, inode: u64) -> io::Result<Vec<Part>> {
    let mut parts = open(log)?;
    if let Some(at) = parts.iter().position(|part| part.inode == inode) {
        parts.drain(..=at);
    }
    Ok(parts)
}

/// Youngest first.
fn older(log: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let file = entry.file_name();
            let number = file.to_str()?.strip_prefix(name)?.strip_prefix('.')?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Where the last so many lines begin: at which part, and where in it. Lines that go on count once.
pub fn tail(parts: &mut [Part], lines: u64, stream: Stream) -> io::Result<(usize, u64)> {
    let mut counting = Counting { left: lines, stream, in_line: false };
    for (at, part) in parts.iter_mut().enumerate().rev() {
        if let Some(offset) = tail_of(&mut part.file, &mut counting)? {
            return Ok((at, offset));
        }
    }
    Ok((0, 0))
}

struct Counting {
    left: u64,
    stream: Stream,
    /// The line below this one was counted, and this one may be its beginning.
    in_line: bool,
}

impl Counting {
    /// Goes up by one line. True: the wanted ones begin below this one.
    fn up(&mut self, line: &[u8]) -> bool {
        let Some(line) = Line::parse(line).filter(|line| line.is_of(self.stream)) else { return false };
        if line.is_partial && self.in_line {
            return false;
        }
        if self.left == 0 {
            return true;
        }
        self.left -= 1;
        self.in_line = true;
        false
    }
}

/// Where the wanted lines begin in this file, if they do not begin before it.
fn tail_of(file: &mut File, counting: &mut Counting) -> io::Result<Option<u64>> {
    let mut end = file.metadata()?.len();
    // The beginning of what was read last: the rest of its first line is in the block before.
    let mut rest: Vec<u8> = Vec::new();
    while end > 0 {
        let size = end.min(BLOCK as u64);
        let start = end - size;
        let mut block = vec![0; usize::try_from(size).unwrap_or(BLOCK)];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut block)?;
        block.append(&mut rest);
        let mut below = block.len();
        while let Some(at) = block[..below].iter().rposition(|byte| *byte == b'\n') {
            if counting.up(&block[at + 1..below]) {
                return Ok(Some(start + below as u64 + 1));
            }
            below = at;
        }
        block.truncate(below);
        rest = if block.len() > LONGEST_LINE { Vec::new() } else { block };
        end = start;
    }
    if counting.up(&rest) {
        return Ok(Some(rest.len() as u64 + 1));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        format!("2026-01-02T03:04:05.000000000Z stdout F {text}\n")
    }

    #[test]
    fn parts_come_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for (name, text) in
            [("0.log", "d"), ("0.log.1", "c"), ("0.log.2", "b"), ("0.log.10", "a"), ("0.log.gz", "x"), ("10.log", "x")]
        {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let read = |parts: Vec<Part>| -> String {
            parts
                .into_iter()
                .map(|mut part| {
                    let mut text = String::new();
                    part.file.read_to_string(&mut text).unwrap();
                    text
                })
                .collect()
        };
        assert_eq!(read(open(&log).unwrap()), "abcd");
        let inode = std::fs::metadata(dir.path().join("0.log.2")).unwrap().ino();
        assert_eq!(read(after(&log, inode).unwrap()), "cd");
        assert_eq!(read(after(&log, 0).unwrap()), "abcd", "whoever was left behind reads what there is");
        std::fs::remove_file(&log).unwrap();
        assert_eq!(read(open(&log).unwrap()), "abc");
        assert!(open(&dir.path().join("none/0.log")).unwrap().is_empty());
    }

    /// What comes from `tail` on, as text.
    fn last(files: &[&str], lines: u64, stream: Stream) -> String {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for (at, text) in files.iter().rev().enumerate() {
            let path = if at == 0 { log.clone() } else { dir.path().join(format!("0.log.{at}")) };
            std::fs::write(path, text).unwrap();
        }
        let mut parts = open(&log).unwrap();
        let (first, offset) = tail(&mut parts, lines, stream).unwrap();
        let mut out = String::new();
        for (at, part) in parts.iter_mut().enumerate().skip(first) {
            part.file.seek(SeekFrom::Start(if at == first { offset } else { 0 })).unwrap();
            part.file.read_to_string(&mut out).unwrap();
        }
        out
    }

    #[test]
    fn the_last_lines() {
        let four = [line("a") + &line("b"), line("c") + &line("d")];
        for (lines, expected) in [
            (0, String::new()),
            (1, line("d")),
            (2, line("c") + &line("d")),
            (3, line("b") + &line("c") + &line("d")),
            (4, four.concat()),
            (9, four.concat()),
        ] {
            assert_eq!(last(&[&four[0], &four[1]], lines, Stream::All), expected, "{lines}");
        }
        let torn = [line("a"), "2026-01-02T03:04:05.000000000Z stdout F half".to_owned()].concat();
        assert_eq!(last(&[&torn], 1, Stream::All), torn[line("a").len()..]);
        assert_eq!(last(&[], 1, Stream::All), "");
        assert_eq!(last(&["", &line("a"), ""], 5, Stream::All), line("a"));
    }

    #[test]
    fn a_line_in_pieces_is_one_line() {
        let pieces = "t stdout P a\nt stdout P b\nt stdout F c\n";
        let log = [line("before"), pieces.to_owned(), line("after")].concat();
        assert_eq!(last(&[&log], 2, Stream::All), format!("{pieces}{}", line("after")));
        assert_eq!(last(&[&log], 1, Stream::All), line("after"));
    }

    #[test]
    fn lines_of_one_stream_are_counted() {
        let log = "t stderr F a\nt stdout F b\nt stderr F c\nt stdout F d\n".to_owned();
        assert_eq!(
            last(&[&log], 1, Stream::Stderr),
            "t stdout F b\nt stderr F c\nt stdout F d\n",
            "others are left out later"
        );
    }

    #[test]
    fn long_logs_are_read_from_their_end() {
        let log: String = (0..20_000).map(|at| line(&format!("line {at}"))).collect();
        let expected: String = (15_000..20_000).map(|at| line(&format!("line {at}"))).collect();
        assert_eq!(last(&[&log], 5_000, Stream::All), expected);
        assert_eq!(last(&[&log], 20_000, Stream::All), log);
        let wide = [line(&"x".repeat(200_000)), line("end")].concat();
        assert_eq!(last(&[&wide], 2, Stream::All), wide);
    }
}
