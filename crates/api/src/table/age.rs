//! Times as people read them in tables: `3d4h` since something happened.

use jiff::Timestamp;
use serde_json::Value;

/// Seconds since 1970 of an RFC 3339 time.
pub(super) fn seconds(time: &str) -> Option<i64> {
    time.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// How long ago the time at a JSON pointer was; `<unknown>` if there is none.
pub(super) fn since(object: &Value, pointer: &str, now: i64) -> String {
    match object.pointer(pointer).and_then(Value::as_str).and_then(seconds) {
        Some(then) => human(now.saturating_sub(then)),
        None => "<unknown>".to_owned(),
    }
}

/// The age of an object.
pub(super) fn age(object: &Value, now: i64) -> Value {
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
