//! Reads this repository into a [`Tree`]. Everything else in this crate is without I/O.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{Tree, tree::Arrow};

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] = &["target", "__pycache__", "recordings", "img"];
/// Folders with a dot that belong to the repository.
const DOTTED: &[&str] = &[".ci", ".cargo"];
/// Files without one of these endings are read only if they have no ending at all.
const ENDINGS: &[&str] = &["rs", "py", "md", "toml", "sh", "yaml"];

/// The root of the repository that this crate lies in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn read() -> Result<Tree> {
    let root = fs::canonicalize(root())?;
    let mut files = Vec::new();
    walk(&root, "", &mut files)?;
    Ok(Tree::new(files, arrows(&root)?))
}

fn walk(folder: &Path, before: &str, files: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{before}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let is_ours = if name.starts_with('.') { DOTTED.contains(&&*name) } else { !SKIPPED.contains(&&*name) };
            if is_ours {
                walk(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if kind.is_file() {
            let ending = name.rsplit_once('.').map(|(_, ending)| ending);
            let is_read = ending.is_none_or(|ending| ENDINGS.contains(&ending));
            // A file that is not text is listed without its content.
            let text = is_read.then(|| fs::read_to_string(entry.path()).ok()).flatten().unwrap_or_default();
            files.push((path, text));
        }
    }
    Ok(())
}

/// The dependencies between crates of the workspace. Nothing is built or downloaded.
fn arrows(root: &Path) -> Result<Vec<Arrow>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let done = Command::new(cargo).args(arguments).current_dir(root).output().context("cannot run cargo metadata")?;
    if !done.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&done.stderr));
    }
    let metadata: Value = serde_json::from_slice(&done.stdout)?;
    let folder = |path: &str| Some(Path::new(path).strip_prefix(root).ok()?.to_string_lossy().into_owned());
    let mut arrows = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let Some(from) = folder(manifest.strip_suffix("/Cargo.toml").unwrap_or(manifest)) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["path"].as_str().and_then(folder);
            arrows.extend(to.map(|to| Arrow { from: from.clone(), to }));
        }
    }
    Ok(arrows)
}
