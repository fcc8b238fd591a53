//! Times as people read them in tables: `3d4h` since something happened.

use jiff::Timestamp;
use serde_json::Value;

use super::tree::Node;

/// Seconds since 1970 of an RFC 3339 time.
pub(super) fn seconds(time: &str) -> Option<i64> {
    whole_seconds(time).or_else(|| time.parse::<Timestamp>().ok().map(Timestamp::as_second))
}

/// The form in which nearly all times are stored, `2026-11-15T08:00:00Z`, read without a parser for everything.
fn whole_seconds(time: &str) -> Option<i64> {
    let bytes: &[u8; 20] = time.as_bytes().try_into().ok()?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
    if marks.iter().any(|(at, mark)| bytes[*at] != *mark) {
        return None;
    }
    let number = |from: usize, to: usize| {
        bytes[from..to].iter().try_fold(0, |all: i64, b| b.is_ascii_digit().then(|| all * 10 + i64::from(b - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=28).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        // The last days of months are left to the parser that knows them all.
        return None;
    }
    // Years begin in March, so that the day that comes and goes is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = days + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// How long ago the time at a JSON pointer was; `<unknown>` if there is none.
pub(super) fn since(object: &Node<'_>, pointer: &str, now: i64) -> String {
    match object.pointer(pointer).and_then(|node| node.as_str()).and_then(|time| seconds(&time)) {
        Some(then) => human(now.saturating_sub(then)),
        None => "<unknown>".to_owned(),
    }
}

/// The age of an object.
pub(super) fn age(object: &Node<'_>, now: i64) -> Value {
    since(object, "/metadata/creationTimestamp", now).into()
}

/// A duration with two or three significant figures. Clocks may differ by a second; more is an error of somebody's clock.
pub fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(days, 'd', hours % 24, 'h'),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => two(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

fn two(large: i64, unit: char, small: i64, small_unit: char) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_times_agree_with_the_parser() {
        let mut quick = 0;
        for day in -719_000_i64..100_000 {
            let second = day * 86_400 + (day * 7919).rem_euclid(86_400);
            let time = Timestamp::from_second(second).unwrap().to_string();
            if let Some(read) = whole_seconds(&time) {
                assert_eq!(read, second, "{time}");
                quick += 1;
            }
        }
        assert!(quick > 700_000);
        for odd in ["", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01 00:00:00Z", "2026-0x-01T00:00:00Z"]
        {
            assert_eq!(whole_seconds(odd), None, "{odd}");
        }
    }

    #[test]
    fn durations() {
        const DAY: i64 = 86_400;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 61, "3h1m"),
            (8 * 3600, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3600, "2d1h"),
            (8 * DAY, "8d"),
            (2 * 365 * DAY - 1, "729d"),
            (2 * 365 * DAY, "2y"),
            (2 * 365 * DAY + DAY, "2y1d"),
            (8 * 365 * DAY + DAY, "8y"),
        ] {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
        human(i64::MAX);
        human(i64::MIN);
    }
}
