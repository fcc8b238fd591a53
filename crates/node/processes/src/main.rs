//! The keeper, the trampoline and the samples without the rest of the binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    selvedge_processes::entry(std::env::args_os().skip(1)).unwrap_or(ExitCode::FAILURE)
}
