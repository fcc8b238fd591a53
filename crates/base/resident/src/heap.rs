//! When it is worth going through the heap.

const MIB: usize = 1 << 20;
/// What is resident besides the heap: stacks, and the addresses that were filled in at start.
const BESIDES: usize = 3 * MIB;
/// Going through a larger heap is felt: it is done only where much is to be had.
const LARGE: usize = 64 * MIB;

/// Bytes that belong to no file, by what `/proc/self/status` says.
pub fn anonymous(status: &str) -> usize {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let amount = line.and_then(|line| line.split_whitespace().next()).and_then(|amount| amount.parse::<usize>().ok());
    amount.unwrap_or(0).saturating_mul(1024)
}

/// Whether much more is resident than is in use. Of a large heap half must be free, and 64 MiB at least.
pub fn is_loose(resident: usize, in_use: usize) -> bool {
    let loose = resident.saturating_sub(in_use + BESIDES);
    match resident <= LARGE {
        true => loose > in_use / 8 + MIB,
        false => loose > in_use.max(LARGE),
    }
}

/// What may stay resident after work that took much.
const LEFT: usize = 32 * MIB;

/// Whether so much more is resident than is in use that it must have been a peak.
pub fn is_peak(resident: usize, in_use: usize) -> bool {
    resident > in_use + BESIDES + LEFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_much_more_than_is_in_use() {
        assert!(is_peak(300 * MIB, 60 * MIB));
        assert!(!is_peak(80 * MIB, 60 * MIB));
    }

    #[test]
    fn only_what_is_much_and_not_too_much() {
        for (resident, in_use, expected) in [
            (10, 6, false),
            (16, 6, true),
            (20, 17, false),
            (60, 52, false),
            (60, 40, true),
            (100, 40, false),
            (100, 10, true),
            (300, 200, false),
            (2000, 1500, false),
            (2000, 100, true),
            (0, 0, false),
        ] {
            assert_eq!(is_loose(resident * MIB, in_use * MIB), expected, "{resident} MiB resident, {in_use} in use");
        }
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        assert_eq!(anonymous("VmRSS:\t  9 kB\nRssAnon:\t    6948 kB\nRssFile:\t 1 kB\n"), 6948 * 1024);
        assert_eq!(anonymous("nothing"), 0);
        assert!(anonymous(&std::fs::read_to_string("/proc/self/status").unwrap()) > 0);
    }
}
