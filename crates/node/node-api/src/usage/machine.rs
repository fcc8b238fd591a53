//! What the whole machine uses, as the kernel tells. Pure but for reading two files.

/// Of a jiffy: the kernel shows times to programs in hundredths of a second on every machine that we know.
const NANOS_PER_TICK: u64 = 10_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    pub cpu_nanos: u64,
    pub memory_total: u64,
    pub memory_available: u64,
    /// Seconds of Unix time.
    pub booted_at: i64,
}

impl Machine {
    pub fn read() -> Self {
        let file = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&file("/proc/stat"), &file("/proc/meminfo"))
    }

    fn parse(stat: &str, meminfo: &str) -> Self {
        let mut machine = Self::default();
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("cpu") => {
                    let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
                    // user, nice, system, then idle and waiting, which are no work, then interrupts and what was stolen.
                    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| ticks.get(*at)).sum::<u64>();
                    machine.cpu_nanos = busy.saturating_mul(NANOS_PER_TICK);
                }
                Some("btime") => machine.booted_at = words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
                _ => {}
            }
        }
        for line in meminfo.lines() {
            let mut words = line.split_ascii_whitespace();
            let name = words.next();
            let mut bytes = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024);
            match name {
                Some("MemTotal:") => machine.memory_total = bytes(),
                Some("MemAvailable:") => machine.memory_available = bytes(),
                _ => {}
            }
        }
        machine
    }

    pub fn memory_used(&self) -> u64 {
        self.memory_total.saturating_sub(self.memory_available)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells() {
        let stat = "cpu  10 1 5 1000 7 1 2 3 0 0\ncpu0 1 1 1 1\nintr 5\nbtime 1700000000\n";
        let machine = Machine::parse(stat, "MemTotal:  2048 kB\nMemFree: 1 kB\nMemAvailable:  512 kB\n");
        assert_eq!(machine.cpu_nanos, 22 * NANOS_PER_TICK);
        assert_eq!(
            (machine.memory_total, machine.memory_used(), machine.booted_at),
            (2 << 20, 1536 << 10, 1_700_000_000)
        );
        assert_eq!(Machine::parse("cpu x\n", "MemTotal: much"), Machine::default());
        assert!(Machine::read().memory_total > 0);
    }
}
