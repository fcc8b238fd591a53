//! Cron expressions, and what is said about wrong ones.

use std::sync::OnceLock;

/// Least, greatest, and names for numbers.
type Bounds = (i64, i64, &'static [(&'static str, i64)]);

const FIELDS: [Bounds; 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (
        1,
        12,
        &[
            ("jan", 1),
            ("feb", 2),
            ("mar", 3),
            ("apr", 4),
            ("may", 5),
            ("jun", 6),
            ("jul", 7),
            ("aug", 8),
            ("sep", 9),
            ("oct", 10),
            ("nov", 11),
            ("dec", 12),
        ],
    ),
    (0, 6, &[("sun", 0), ("mon", 1), ("tue", 2), ("wed", 3), ("thu", 4), ("fri", 5), ("sat", 6)]),
];
const DESCRIPTORS: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Whether a time zone is known by this name. No name is UTC.
pub(crate) fn is_zone(name: &str) -> bool {
    static ZONES: OnceLock<Vec<&str>> = OnceLock::new();
    let zones = ZONES.get_or_init(|| include_str!("../../data/zones.txt").lines().collect());
    matches!(name, "" | "Local") || zones.binary_search(&name).is_ok()
}

/// Complains about a schedule of five fields or a descriptor.
pub(crate) fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let mut schedule = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let Some((_, rest)) = schedule.split_once(' ') else {
            return Err(format!("provided bad location {}", schedule.split_once('=').map_or("", |(_, zone)| zone)));
        };
        let zone = schedule.split_once(['=', ' ']).and_then(|(_, rest)| rest.split(' ').next()).unwrap_or("");
        if !is_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        schedule = rest.trim();
    }
    if schedule.starts_with('@') {
        return descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (text, bounds) in fields.iter().zip(FIELDS) {
        for range in text.split(',').filter(|part| !part.is_empty()) {
            check_range(range, bounds)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        Some(duration) if !is_duration(duration) => {
            Err(format!("failed to parse duration {text}: time: invalid duration \"{duration}\""))
        }
        Some(_) => Ok(()),
        None => Err(format!("unrecognized descriptor: {text}")),
    }
}

/// A Go duration such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find(|u| rest[digits..].starts_with(**u))
        else {
            return false;
        };
        if digits == 0 || rest[..digits].matches('.').count() > 1 {
            return false;
        }
        rest = &rest[digits + unit.len()..];
        parts += 1;
    }
    parts > 0
}

fn check_range(text: &str, (min, max, names): Bounds) -> Result<(), String> {
    let (range, step) = match text.split('/').collect::<Vec<_>>()[..] {
        [range] => (range, None),
        [range, step] => (range, Some(step)),
        _ => return Err(format!("too many slashes: {text}")),
    };
    let number = |word: &str| {
        let lower = word.to_lowercase();
        match names.iter().find(|(name, _)| *name == lower) {
            Some((_, value)) => Ok(*value),
            None => parse(word),
        }
    };
    let bounds: Vec<&str> = range.split('-').collect();
    let single = bounds.len() == 1;
    let (start, mut end) = match bounds[..] {
        ["*" | "?", ..] => (min, max),
        [one] => {
            let n = number(one)?;
            (n, n)
        }
        [low, high] => (number(low)?, number(high)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    if let Some(step) = step {
        if parse(step)? == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
        if single && !matches!(range, "*" | "?") {
            end = max;
        }
    }
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {text}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    Ok(())
}

fn parse(word: &str) -> Result<i64, String> {
    let n: i64 = word
        .parse()
        .map_err(|_| format!("failed to parse int from {word}: strconv.Atoi: parsing \"{word}\": invalid syntax"))?;
    if n < 0 { Err(format!("negative number ({n}) not allowed: {word}")) } else { Ok(n) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for good in ["* * * * *", "*/5 0-23/2 1,15 JAN-dec mon", "@daily", "@every 1h30m", "0 0 ? * 0", "5/15 * * * *"]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, want) in [
            ("every day", "expected exactly 5 fields, found 2: [every day]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
        ] {
            assert_eq!(check(bad), Err(want.to_owned()), "{bad}");
        }
    }
}
