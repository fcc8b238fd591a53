//! Which parts of the address space are nothing but the program's file.

/// A range of addresses.
#[derive(Debug, PartialEq)]
pub struct Map {
    pub start: usize,
    pub end: usize,
}

/// The mappings of a file that nobody can write and of which no page differs from the file, by what `/proc/self/smaps` says. The places where
/// addresses were filled in at start are read-only too by now, but differ.
pub fn untouched(smaps: &str, file: &str) -> Vec<Map> {
    let (mut found, mut current) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some(map) = header(line, file) {
            current = map;
        } else if let Some(amount) = line.strip_prefix("Anonymous:")
            && let Some(map) = current.take()
            && amount.split_whitespace().next() == Some("0")
        {
            found.push(map);
        }
    }
    found
}

/// `None` if the line begins no mapping, `Some(None)` if it begins another one.
fn header(line: &str, file: &str) -> Option<Option<Map>> {
    let mut parts = line.split_whitespace();
    let (start, end) = parts.next()?.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let rights = parts.next()?;
    let path = line.find('/').map(|at| &line[at..]);
    let ours = path == Some(file) && matches!(rights, "r-xp" | "r--p") && start < end;
    Some(ours.then_some(Map { start, end }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d000000000-55d000100000 r--p 00000000 fe:00 1234                       /usr/bin/my prog
Size:               1024 kB
Anonymous:             0 kB
VmFlags: rd mr mw me sd
55d000100000-55d000900000 r-xp 00100000 fe:00 1234                       /usr/bin/my prog
Anonymous:             0 kB
55d000900000-55d000a00000 r--p 00900000 fe:00 1234                       /usr/bin/my prog
Anonymous:           960 kB
55d000a00000-55d000b00000 rw-p 00a00000 fe:00 1234                       /usr/bin/my prog
Anonymous:             0 kB
55d000c00000-55d000d00000 rw-p 00000000 00:00 0                          [heap]
Anonymous:             0 kB
7f0000000000-7f0000100000 r-xp 00000000 fe:00 99                         /lib/libc.so.6
Anonymous:             0 kB
";

    #[test]
    fn only_what_cannot_differ_from_the_file() {
        let code = Map { start: 0x55d000100000, end: 0x55d000900000 };
        let constants = Map { start: 0x55d000000000, end: 0x55d000100000 };
        assert_eq!(untouched(SMAPS, "/usr/bin/my prog"), [constants, code]);
        assert_eq!(untouched(SMAPS, "/usr/bin/my"), []);
        assert_eq!(untouched("", "/usr/bin/my prog"), []);
    }
}
