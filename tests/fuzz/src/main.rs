//! Feeds every decoder with mutated input and reports the first that panics, hangs or breaks a law.
//!
//! Not cargo-fuzz, which needs a nightly compiler: a plain program that runs in `make test` for a few seconds and for as
//! long as one likes otherwise. A failure prints the input; `--replay FILE` runs one target on it again.

mod mutate;
mod seeds;
mod targets;
mod wire;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use rand::{Rng, SeedableRng, rngs::StdRng};

use mutate::Mutator;
use targets::{TARGETS, Target};

/// No input of some kilobytes may take longer, even in an unoptimised build on a busy machine.
const SLOW: Duration = Duration::from_secs(10);

/// What a request handler has at least; deep input must not need more.
const STACK: usize = 2 << 20;

#[derive(Parser)]
#[command(name = "fuzz", about = "Feeds every decoder with mutated input")]
struct Cli {
    /// How long each target runs
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Only this target
    #[arg(long)]
    target: Option<String>,
    /// Repeats a run
    #[arg(long)]
    seed: Option<u64>,
    /// Runs the target once on this file
    #[arg(long, requires = "target")]
    replay: Option<PathBuf>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let chosen: Vec<&Target> = TARGETS.iter().filter(|t| cli.target.as_deref().is_none_or(|n| n == t.name)).collect();
    if chosen.is_empty() {
        bail!("no such target; there are {}", TARGETS.iter().map(|t| t.name).collect::<Vec<_>>().join(", "));
    }
    let seed = cli.seed.unwrap_or_else(|| rand::rng().random());
    let worker = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        if let Some(file) = cli.replay {
            let input = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
            return run_one(chosen[0], &input);
        }
        chosen.iter().try_for_each(|target| fuzz(target, seed, Duration::from_secs(cli.seconds)))
    })?;
    match worker.join() {
        Ok(result) => result,
        Err(_) => bail!("the fuzzer itself panicked"),
    }
}

fn fuzz(target: &Target, seed: u64, time: Duration) -> Result<()> {
    let mut mutator = Mutator::new(StdRng::seed_from_u64(seed), (target.seeds)());
    for input in mutator.corpus().to_vec() {
        run_one(target, &input)?;
    }
    let begun = Instant::now();
    let mut runs = 0_u64;
    while begun.elapsed() < time {
        let input = mutator.next_input();
        run_one(target, &input).with_context(|| format!("seed {seed}"))?;
        runs += 1;
    }
    writeln!(std::io::stdout(), "fuzz {:<12} {runs:>8} inputs", target.name)?;
    Ok(())
}

fn run_one(target: &Target, input: &[u8]) -> Result<()> {
    let begun = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let broken = match verdict {
        Ok(Ok(())) if begun.elapsed() < SLOW => return Ok(()),
        Ok(Ok(())) => format!("took {:?}", begun.elapsed()),
        Ok(Err(law)) => law,
        Err(_) => "panicked".to_owned(),
    };
    let file = std::env::temp_dir().join(format!("selvedge-fuzz-{}", target.name));
    std::fs::write(&file, input)?;
    bail!("{} {broken} on {:?}; kept in {}", target.name, String::from_utf8_lossy(input), file.display())
}
