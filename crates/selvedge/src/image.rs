//! `selvedge image`: a container image of this very program, with the libraries that it runs with. No registry and no Dockerfile are needed.
//! The archive has the form of `docker save`, which Docker, Podman and containerd import.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cli::say;

/// The name of the image, also in what `selvedge edge manifest` prints.
pub const NAME: &str = concat!("selvedge:", env!("CARGO_PKG_VERSION"));
/// Where the program is in the image.
const PROGRAM: &str = "usr/local/bin/selvedge";
/// The user of the image, as in the manifest of an edge.
const USER: u64 = 65532;

#[derive(Args)]
pub struct Image {
    /// The archive to write. [default: the standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The name and tag of the image.
    #[arg(long, default_value = NAME)]
    name: String,
}

pub fn run(image: &Image) -> Result<()> {
    let archive = || -> Result<Vec<u8>> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        archive(&image.name, &layer(&program)?)
    };
    match &image.output {
        Some(path) => {
            std::fs::write(path, archive()?).with_context(|| format!("cannot write {}", path.display()))?;
            say(&format!(
                "{} is in {}: `docker load -i {2}` or `ctr images import {2}`\n",
                image.name,
                path.display(),
                path.display()
            ))
        }
        None if io::stdout().is_terminal() => {
            bail!("the image is binary: write it to a file with --output, or pipe it into `docker load`")
        }
        None => Ok(io::stdout().write_all(&archive()?)?),
    }
}

/// The only layer: the program, what it is loaded by, its libraries, and a user.
fn layer(program: &Path) -> Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    add_file(&mut layer, PROGRAM, program)?;
    let loader = loader_of(program)?;
    for library in libraries(&std::fs::read_to_string("/proc/self/maps")?) {
        let is_loader = loader.as_ref().is_some_and(|loader| loader.file_name() == library.file_name());
        let inside = if is_loader { loader.as_deref().unwrap_or(&library) } else { &library };
        add_file(&mut layer, &inside.to_string_lossy(), &library)?;
    }
    for (directory, mode, user) in [("tmp", 0o1777, 0), ("var/lib/selvedge", 0o700, USER)] {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(mode);
        header.set_uid(user);
        header.set_gid(user);
        header.set_size(0);
        layer.append_data(&mut header, directory, io::empty())?;
    }
    add(
        &mut layer,
        "etc/passwd",
        0o644,
        format!("root:x:0:0:root:/:\nselvedge:x:{USER}:{USER}::/var/lib/selvedge:\n").as_bytes(),
    )?;
    Ok(layer.into_inner()?)
}

/// The archive: the layer, a description of how to run it, and a list of both.
fn archive(name: &str, layer: &[u8]) -> Result<Vec<u8>> {
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {
            "Entrypoint": [format!("/{PROGRAM}")], "User": format!("{USER}:{USER}"), "WorkingDir": "/var/lib/selvedge",
            "Env": ["PATH=/usr/local/bin", "HOME=/var/lib/selvedge"],
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{:x}", Sha256::digest(layer))]},
        "history": [{"created_by": concat!("selvedge image ", env!("CARGO_PKG_VERSION"))}],
    })
    .to_string();
    let config_name = format!("{:x}.json", Sha256::digest(&config));
    let manifest = json!([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).to_string();
    let mut archive = tar::Builder::new(Vec::with_capacity(layer.len() + (1 << 16)));
    add(&mut archive, "layer.tar", 0o644, layer)?;
    add(&mut archive, &config_name, 0o644, config.as_bytes())?;
    add(&mut archive, "manifest.json", 0o644, manifest.as_bytes())?;
    Ok(archive.into_inner()?)
}

fn add_file(archive: &mut tar::Builder<Vec<u8>>, name: &str, path: &Path) -> Result<()> {
    let content = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    add(archive, name.trim_start_matches('/'), 0o755, &content)
}

/// Times are left at zero, so that the same program makes the same image.
fn add(archive: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    Ok(archive.append_data(&mut header, name, content)?)
}

/// The name that image tools use for this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The libraries that a process has loaded, by the list of its mappings.
fn libraries(maps: &str) -> BTreeSet<PathBuf> {
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(Path::new);
    let named = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
    paths.filter(|path| path.is_absolute() && named(path)).map(Path::to_owned).collect()
}

/// The loader that an ELF program names; none if it is linked statically.
fn loader_of(program: &Path) -> Result<Option<PathBuf>> {
    use std::os::unix::fs::FileExt;
    const INTERPRETER: u32 = 3;
    let file = File::open(program).with_context(|| format!("cannot read {}", program.display()))?;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    let (at, size, count) = (long(&head, 32), u64::from(short(&head, 54)), u64::from(short(&head, 56)));
    for n in 0..count {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, at + n * size)?;
        if word(&entry, 0) == INTERPRETER {
            let mut name = vec![0; usize::try_from(long(&entry, 32))?];
            file.read_exact_at(&mut name, long(&entry, 8))?;
            return Ok(Some(PathBuf::from(String::from_utf8(name)?.trim_end_matches('\0'))));
        }
    }
    Ok(None)
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

fn short(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes(from, at))
}

fn word(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(from, at))
}

fn long(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(from, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_among_mappings() {
        let maps = "\
7f00-7f01 r--p 00000000 fe:00 1 /usr/lib/libc.so.6
7f01-7f02 r-xp 00000000 fe:00 1 /usr/lib/libc.so.6
7f02-7f03 r-xp 00000000 fe:00 2 /usr/local/bin/selvedge
7f03-7f04 rw-p 00000000 00:00 0 [heap]
7f04-7f05 rw-p 00000000 00:00 0
";
        assert_eq!(libraries(maps).into_iter().collect::<Vec<_>>(), [Path::new("/usr/lib/libc.so.6")]);
    }

    #[test]
    fn the_same_program_makes_the_same_archive() {
        let program = std::env::current_exe().unwrap();
        let loader = loader_of(&program).unwrap().unwrap();
        assert!(loader.is_absolute() && loader.exists(), "{loader:?}");
        let layer = layer(&program).unwrap();
        assert_eq!(archive("a:1", &layer).unwrap(), archive("a:1", &layer).unwrap());
    }
}
