//! The binary: one command per role.

mod audit;
mod backup;
mod center;
mod cli;
mod config;
mod deploy;
mod edge;
mod fleet;
mod identity;
mod image;
mod inside;
mod memory;
mod process;
mod remembered;
mod secrets;
mod stop;
mod up;
mod version;
mod ws;

use std::{path::Path, process::ExitCode};

use clap::Parser;

fn main() -> ExitCode {
    // The keeper of containers and the containers themselves are this program too, and are to be small and quick: nothing else comes first.
    if let Some(code) = processes::entry(std::env::args_os().skip(1)) {
        return code;
    }
    let args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    // kubectl finds its plugins by the names of their programs.
    let name = args.first().and_then(|path| Path::new(path).file_name()).and_then(|name| name.to_str());
    let done = match name {
        Some("kubectl-ws") => ws::run_plugin(ws::Plugin::parse()),
        Some("kubectl_complete-ws") => ws::complete(&args[1..]),
        _ => cli::run(cli::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::complain(&error);
            ExitCode::FAILURE
        }
    }
}
