//! How the release binary is laid out, because every edge pays for what of it is resident.
//!
//! The functions that a server runs lie side by side (`layout.ld`, written by `make layout`), and the places where addresses are
//! filled in at start are listed in the short form. Both need the linker that rustc brings along; with any other the binary is
//! the same, only larger in memory.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=layout.ld");
    let Some(out) = env::var_os("OUT_DIR") else { return };
    // Where cargo knows it: what it remembers of this script must hold when the sources are moved.
    let layout = Path::new(&out).join("layout.ld");
    if !is("PROFILE", "release") || !links_with_lld() || fs::copy("layout.ld", &layout).is_err() {
        return;
    }
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", layout.display());
    if libc_reads_short_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

fn is(variable: &str, value: &str) -> bool {
    env::var(variable).is_ok_and(|found| found == value)
}

/// rustc's own choice on this platform, if it has it with it and nobody chose another.
fn links_with_lld() -> bool {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let chosen = env::var_os("RUSTC_LINKER").is_some() || flags.contains("link");
    if chosen || !is("TARGET", "x86_64-unknown-linux-gnu") || !is("HOST", "x86_64-unknown-linux-gnu") {
        return false;
    }
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let printed = Command::new(rustc).args(["--print", "sysroot"]).output().map(|done| done.stdout).unwrap_or_default();
    let sysroot = String::from_utf8_lossy(&printed).trim().to_owned();
    Path::new(&sysroot).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld").is_file()
}

/// glibc can since 2.36, and says so in its list of versions.
fn libc_reads_short_relocations() -> bool {
    let printed =
        Command::new("cc").arg("-print-file-name=libc.so.6").output().map(|done| done.stdout).unwrap_or_default();
    let mark = b"GLIBC_ABI_DT_RELR";
    fs::read(String::from_utf8_lossy(&printed).trim())
        .is_ok_and(|libc| libc.windows(mark.len()).any(|part| part == mark))
}
