//! A runtime whose containers are child processes, kept by a process of their own: it outlives the agent.
//!
//! ```text
//!  agent ──unix socket──▶ keeper ──spawns──▶ trampoline ──exec──▶ a local command
//!  (impl Runtime)         (waits, writes     (session, limits,  └─▶ a sample, without exec
//!                          logs, remembers)   view, user, stdio)
//! ```
//!
//! The keeper and the trampoline are this same program under hidden names ([`entry`]). Nothing here is a sandbox: a container is a process
//! that sees this machine.

mod addresses;
mod agent;
mod capabilities;
mod files;
mod hidden;
mod home;
mod images;
mod journal;
mod keeper;
mod limits;
mod logs;
mod os;
mod protocol;
mod root;
mod samples;
mod trampoline;
mod tree;
mod view;
mod wire;

/// Frames between agent and keeper, for the fuzz target.
pub mod frames {
    use crate::protocol::Frames;
    pub use crate::protocol::{Frame, Kind, Wrong, frame};

    /// All frames in bytes that arrive in these pieces, and what is wrong behind them.
    pub fn cut<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Option<Wrong>) {
        let (mut frames, mut found) = (Frames::default(), Vec::new());
        for piece in pieces {
            frames.push(piece);
            loop {
                match frames.next() {
                    Ok(Some(frame)) => found.push(frame),
                    Ok(None) => break,
                    Err(wrong) => return (found, Some(wrong)),
                }
            }
        }
        (found, None)
    }
}

use std::{ffi::OsString, io::Write, process::ExitCode};

pub use agent::{Error, Options, Processes, end_all, replace_keeper};
pub use files::raise_limit as raise_file_limit;
pub use hidden::register as register_data_dir;
pub use images::{Image, Images, Program};
pub use protocol::Rules;

/// What this program is when the first of its arguments says so; to be asked before anything else is built. `None`: it is something else.
pub fn entry(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match args.next()?.to_str()? {
        "keeper" => Some(keeper::main(args)),
        "container" => Some(trampoline::main(args)),
        "try-view" => Some(view::main(args)),
        // The rest of the commands is explained elsewhere.
        "help" => {
            let name = args.next().filter(|name| HIDDEN.iter().any(|hidden| name == hidden))?;
            entry([name, "--help".into()].into_iter())
        }
        _ => None,
    }
}

const HIDDEN: [&str; 3] = ["keeper", "container", "try-view"];

/// Says how one of these programs is used, because somebody asked for it, or because something is wrong.
fn usage(text: &str, wrong: Option<&str>) -> ExitCode {
    match wrong {
        None => {
            let _ = write!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        Some(wrong) => {
            let _ = write!(std::io::stderr(), "selvedge: {wrong}\n\n{text}");
            ExitCode::from(2)
        }
    }
}
