//! `selvedge version`.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::cli::say;

#[derive(Args)]
pub struct Version {
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

pub fn run(version: &Version) -> Result<()> {
    let (own, kubernetes) = (env!("CARGO_PKG_VERSION"), server::KUBERNETES_VERSION);
    let (os, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    let commit = option_env!("SELVEDGE_COMMIT");
    match version.output {
        Output::Text => {
            let commit = commit.map(|commit| format!(" (commit {commit})")).unwrap_or_default();
            say(&format!("selvedge {own}{commit}\nKubernetes API {kubernetes}\nPlatform {os}/{architecture}\n"))
        }
        Output::Json => {
            let all = json!({"version": own, "commit": commit, "kubernetesVersion": kubernetes, "os": os, "architecture": architecture});
            say(&format!("{all:#}\n"))
        }
    }
}
