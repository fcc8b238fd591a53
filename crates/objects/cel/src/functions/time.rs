//! Durations and timestamps.

use std::cmp::Ordering;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use schema::go::quote;

use super::super::value::Value;
use super::super::{Evaluated, Failure, error, no_overload};

/// The first and the last second that a timestamp may be in: the years 1 to 9999.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;
const NANOS: i64 = 1_000_000_000;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// A point in time. The zone in which it was written only matters for how it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Since 1970 in UTC.
    seconds: i64,
    nanos: i32,
    /// Seconds east of Greenwich.
    offset: i32,
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl Time {
    /// `None` outside of the years that there are.
    fn new(seconds: i64, nanos: i32, offset: i32) -> Option<Self> {
        (FIRST_SECOND..=LAST_SECOND).contains(&seconds).then_some(Self { seconds, nanos, offset })
    }

    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds since 1970.
    fn since_epoch(self) -> i128 {
        i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos)
    }

    fn moved(self, nanos: i128) -> Option<Self> {
        let sum = self.since_epoch() + nanos;
        let seconds = i64::try_from(sum.div_euclid(i128::from(NANOS))).ok()?;
        Self::new(seconds, i32::try_from(sum.rem_euclid(i128::from(NANOS))).ok()?, self.offset)
    }

    /// The date and the time of day so many seconds east of Greenwich.
    fn civil(self, offset: i32) -> Option<DateTime> {
        EPOCH.checked_add(SignedDuration::new(self.seconds + i64::from(offset), self.nanos)).ok()
    }
}

fn overflow<T>() -> Result<T, Failure> {
    error("timestamp overflow")
}

/// `timestamp(seconds)`.
pub fn from_seconds(seconds: i64) -> Evaluated {
    Time::new(seconds, 0, 0).map_or_else(overflow, |time| Ok(Value::Timestamp(time)))
}

/// A time as RFC 3339 has it, with everything that Go's parser insists on.
pub fn parse_timestamp(text: &str) -> Result<Time, Failure> {
    match read_timestamp(text) {
        Some((seconds, nanos, offset)) => Time::new(seconds, nanos, offset).map_or_else(overflow, Ok),
        None => {
            let text = quote(text);
            error(format!("parsing time {text} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text} as \"2006\""))
        }
    }
}

/// Seconds, nanoseconds and the offset of the zone.
fn read_timestamp(text: &str) -> Option<(i64, i32, i32)> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i32> {
        let digits = bytes.get(from..to)?;
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, |n, d| n * 10 + i32::from(d - b'0')))
    };
    let signs = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !signs.iter().all(|(at, sign)| bytes.get(*at) == Some(sign)) {
        return None;
    }
    let mut at = 19;
    let mut nanos = 0;
    if matches!(bytes.get(at), Some(b'.' | b',')) {
        let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        // What is smaller than a nanosecond is dropped.
        let kept = digits.min(9);
        nanos = number(at + 1, at + 1 + kept)? * 10i32.pow(9 - kept as u32);
        at += 1 + digits;
    }
    let offset = match bytes.get(at..)? {
        [b'Z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 24 || minutes >= 60 {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let small = |from: usize| number(from, from + 2).and_then(|n| i8::try_from(n).ok());
    let year = i16::try_from(number(0, 4)?).ok()?;
    let civil = DateTime::new(year, small(5)?, small(8)?, small(11)?, small(14)?, small(17)?, 0).ok()?;
    Some((civil.duration_since(EPOCH).as_secs() - i64::from(offset), nanos, offset))
}

/// A timestamp as Go's `RFC3339Nano` shows it: no digits that say nothing.
pub fn show_timestamp(time: Time) -> String {
    let Some(civil) = time.civil(time.offset) else { return String::new() };
    let mut text = civil.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    if time.nanos != 0 {
        text.push_str(format!(".{:09}", time.nanos).trim_end_matches('0'));
    }
    match time.offset {
        0 => text.push('Z'),
        offset => {
            let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
            text.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
    }
    text
}

/// A duration as Go reads it: `1h30m`, `-1.5s`, `0`.
pub fn parse_duration(text: &str) -> Evaluated {
    let invalid = || error(format!("time: invalid duration {}", quote(text)));
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Value::Duration(0));
    }
    if rest.is_empty() {
        return invalid();
    }
    let limit = i128::from(i64::MAX) + i128::from(negative);
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (whole, behind) = digits(rest);
        let (fraction, behind) = behind.strip_prefix('.').map_or(("", behind), digits);
        if whole.is_empty() && fraction.is_empty() {
            return invalid();
        }
        let (unit, behind) =
            behind.split_at(behind.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(behind.len()));
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return invalid(),
        };
        // More digits than this are more than a duration holds, or less than a nanosecond of an hour.
        let amount = if whole.is_empty() { Ok(0) } else { whole.parse::<u64>() };
        let Ok(amount) = amount else { return invalid() };
        let kept = &fraction[..fraction.len().min(15)];
        let part = kept.parse::<i128>().unwrap_or(0) * nanos / 10i128.pow(kept.len() as u32);
        total += i128::from(amount) * nanos + part;
        if total > limit {
            return invalid();
        }
        rest = behind;
    }
    let total = if negative { -total } else { total };
    i64::try_from(total).map_or_else(|_| invalid(), |nanos| Ok(Value::Duration(nanos)))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A duration in seconds: `5400s`, `0.5s`.
pub fn show_duration(nanos: i64) -> String {
    let (seconds, rest) = (nanos / NANOS, nanos % NANOS);
    format!("{}s", seconds as f64 + rest as f64 / 1e9)
}

/// `+` and `-` of times.
pub fn arithmetic(name: &str, a: &Value, b: &Value) -> Evaluated {
    let duration =
        |sum: Option<i64>| sum.map_or_else(|| error("duration overflow"), |nanos| Ok(Value::Duration(nanos)));
    let moved = |time: &Time, nanos: i128| time.moved(nanos).map_or_else(overflow, |time| Ok(Value::Timestamp(time)));
    match (name, a, b) {
        ("_+_", Value::Duration(a), Value::Duration(b)) => duration(a.checked_add(*b)),
        ("_-_", Value::Duration(a), Value::Duration(b)) => duration(a.checked_sub(*b)),
        ("_+_", Value::Timestamp(time), Value::Duration(by)) | ("_+_", Value::Duration(by), Value::Timestamp(time)) => {
            moved(time, (*by).into())
        }
        ("_-_", Value::Timestamp(time), Value::Duration(by)) => moved(time, -i128::from(*by)),
        ("_-_", Value::Timestamp(a), Value::Timestamp(b)) => {
            duration(i64::try_from(a.since_epoch() - b.since_epoch()).ok())
        }
        _ => no_overload(),
    }
}

pub fn duration_method(name: &str, nanos: i64, args: &[Value]) -> Evaluated {
    Ok(Value::Int(match (name, args) {
        ("getHours", []) => nanos / 3_600_000_000_000,
        ("getMinutes", []) => nanos / 60_000_000_000,
        ("getSeconds", []) => nanos / 1_000_000_000,
        ("getMilliseconds", []) => nanos / 1_000_000,
        _ => return no_overload(),
    }))
}

pub fn timestamp_method(name: &str, time: Time, args: &[Value]) -> Evaluated {
    let offset = match args {
        [] => 0,
        [Value::String(zone)] => offset_of(zone, time)?,
        _ => return no_overload(),
    };
    let Some(civil) = time.civil(offset) else { return overflow() };
    Ok(Value::Int(match name {
        "getFullYear" => civil.year().into(),
        "getMonth" => i64::from(civil.month()) - 1,
        "getDayOfYear" => i64::from(civil.date().day_of_year()) - 1,
        "getDayOfMonth" => i64::from(civil.day()) - 1,
        "getDate" => civil.day().into(),
        "getDayOfWeek" => civil.date().weekday().to_sunday_zero_offset().into(),
        "getHours" => civil.hour().into(),
        "getMinutes" => civil.minute().into(),
        "getSeconds" => civil.second().into(),
        "getMilliseconds" => civil.millisecond().into(),
        _ => return no_overload(),
    }))
}

/// How many seconds a zone is east of Greenwich at a time. It is a name, or hours and minutes.
fn offset_of(zone: &str, time: Time) -> Result<i32, Failure> {
    let unknown = || Failure::Error(format!("unknown time zone {zone}"));
    let Some((hours, minutes)) = zone.split_once(':') else {
        if matches!(zone, "" | "UTC" | "Local") {
            return Ok(0);
        }
        let zone = TimeZone::get(zone).map_err(|_| unknown())?;
        // The last hours of the year 9999 are too late for a table of zones.
        let at = jiff::Timestamp::from_second(time.seconds).unwrap_or(jiff::Timestamp::MAX);
        return Ok(zone.to_offset(at).seconds());
    };
    let number = |text: &str| {
        let invalid = || Failure::Error(format!("strconv.Atoi: parsing {}: invalid syntax", quote(text)));
        text.parse::<i32>().map_err(|_| invalid())
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minutes = if zone.starts_with('-') { -minutes } else { minutes };
    hours.checked_mul(60).and_then(|h| h.checked_add(minutes)?.checked_mul(60)).ok_or_else(unknown)
}
