//! Gives memory back to the system that a process holds without need. Every edge pays for what is resident. Beside
//! that, the two other things that need the C library: [`reset_signals`] and [`keep_files_from_children`].
//!
//! The kernel maps a program's file in pieces around whatever runs, and leaves them mapped: after start-up two thirds of that is code
//! that ran once. What is let go of here is read from the file again, by a page fault, if it is needed after all.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod heap;
#[cfg(target_os = "linux")]
mod inherited;
#[cfg(target_os = "linux")]
mod maps;

#[cfg(target_os = "linux")]
pub use inherited::{keep_files_from_children, reset_signals};

/// Lets go of the program's own code and constants. Costs some hundred page faults of what is still in use.
#[cfg(target_os = "linux")]
pub fn let_go_of_code() -> std::io::Result<()> {
    let program = std::env::current_exe()?;
    let text = std::fs::read_to_string("/proc/self/smaps")?;
    for map in maps::untouched(&text, &program.to_string_lossy()) {
        // SAFETY: the range is a mapping of the program's file that cannot be written and of which no page was ever changed, so what is
        // read there again is what was there. Nothing unmaps or changes a mapping of the program itself while it runs.
        let done = unsafe { libc::madvise(map.start as *mut libc::c_void, map.end - map.start, libc::MADV_DONTNEED) };
        if done != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Lets go of what was allocated and is free again, if it is much. Says whether it was.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn let_go_of_heap() -> std::io::Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    // SAFETY: may be called at any time, by any thread.
    let heap = unsafe { libc::mallinfo2() };
    let is_worth_it = heap::is_loose(heap::anonymous(&status), heap.uordblks + heap.hblkhd);
    if is_worth_it {
        // SAFETY: may be called at any time, by any thread.
        unsafe { libc::malloc_trim(0) };
    }
    Ok(is_worth_it)
}

/// The same after work that took very much: for the thread that did it, and whatever else is resident. Others that
/// allocate from the same heap wait meanwhile, which after such work is a small part of what it took.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn let_go_of_peak() -> std::io::Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    // SAFETY: may be called at any time, by any thread.
    let heap = unsafe { libc::mallinfo2() };
    let is_worth_it = heap::is_peak(heap::anonymous(&status), heap.uordblks + heap.hblkhd);
    if is_worth_it {
        // SAFETY: may be called at any time, by any thread.
        unsafe { libc::malloc_trim(0) };
    }
    Ok(is_worth_it)
}

/// All threads allocate from one heap: smaller, and slower only where many threads allocate all the time. Before other threads begin.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn use_one_heap() {
    // SAFETY: sets a number that the allocator reads when it makes its next heap.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Keeps a little of what is free at the end of a heap. Otherwise a long list, which is made and sent piece by piece, gives every piece back
/// to the system and asks for it again: a tenth of the whole work. [`let_go_of_heap`] gives it back when nobody lists.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_some_heap() {
    // SAFETY: both set a number that the allocator reads. The second is 128 KiB by default as well, but grows by itself as long as the first
    // was never set; what is larger goes back to the system at once.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn let_go_of_code() -> std::io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub fn reset_signals() {}

#[cfg(not(target_os = "linux"))]
pub fn keep_files_from_children() -> std::io::Result<()> {
    Ok(())
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn let_go_of_heap() -> std::io::Result<bool> {
    Ok(false)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn let_go_of_peak() -> std::io::Result<bool> {
    Ok(false)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn use_one_heap() {}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_some_heap() {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_program_runs_on_and_is_smaller() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = text.lines().find(|line| line.starts_with("RssFile:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let said = format!("{:?}", std::time::SystemTime::now());
        let before = resident();
        let_go_of_code().unwrap();
        let_go_of_heap().unwrap();
        let after = resident();
        assert!(after < before, "{before} KiB, then {after} KiB");
        assert_ne!(said, format!("{:?}", std::time::SystemTime::now()));
        assert!("12x".parse::<u8>().is_err(), "what was let go of is there again");
    }
}
