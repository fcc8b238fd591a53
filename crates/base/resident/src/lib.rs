//! The calls of the C library that need `unsafe`: settings of the allocator, giving free heap back to the system, and
//! what a child process inherits ([`reset_signals`], [`keep_files_from_children`]).

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod heap;
#[cfg(target_os = "linux")]
mod inherited;

#[cfg(target_os = "linux")]
pub use inherited::{keep_files_from_children, reset_signals};

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

/// All threads allocate from one heap: smaller, and slower only where many threads allocate all the time. Before other
/// threads begin.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn use_one_heap() {
    // SAFETY: sets a number that the allocator reads when it makes its next heap.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Keeps a little of what is free at the end of a heap. Otherwise a long list, which is made and sent piece by piece,
/// gives every piece back to the system and asks for it again: a tenth of the whole work. [`let_go_of_heap`] gives it
/// back when nobody lists.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_some_heap() {
    // SAFETY: both set a number that the allocator reads. The second is 128 KiB by default as well, but grows by itself
    // as long as the first was never set; what is larger goes back to the system at once.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
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

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn free_heap_goes_back_to_the_system() {
        let resident = || heap::anonymous(&std::fs::read_to_string("/proc/self/status").unwrap());
        // Blocks below the size for which the allocator maps memory of its own. The last one keeps the end of the heap
        // in use.
        let mut blocks: Vec<Vec<u8>> = (0..2048).map(|_| vec![1; 16 << 10]).collect();
        let last = blocks.pop();
        drop(blocks);
        let before = resident();
        assert!(let_go_of_heap().unwrap(), "32 MiB are free");
        let after = resident();
        assert!(after + (16 << 20) < before, "{before} bytes, then {after}");
        drop(last);
    }
}
