//! Prints the time every second.

use std::{
    io::{self, Write},
    thread,
    time::Duration,
};

use super::Given;

pub fn run(given: &Given) -> Result<(), String> {
    let every = given.option("every", "CLOCK_EVERY").unwrap_or("1");
    let every = every.parse().ok().filter(|seconds: &f64| *seconds >= 0.001 && *seconds < 1e6);
    let every = every.ok_or("--every is a number of seconds, as in 0.5")?;
    for tick in 0_u64.. {
        let now = jiff::Timestamp::now();
        writeln!(io::stdout(), "{now:.3} tick {tick}").map_err(|error| format!("cannot print the time: {error}"))?;
        thread::sleep(Duration::from_secs_f64(every));
    }
    Ok(())
}
