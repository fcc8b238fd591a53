//! Strings with a form of their own: times, durations and base64, read as Go reads them.

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use jiff::{Timestamp, tz::TimeZone};

/// RFC 3339 to the second in UTC. `None` is Go's zero time, which is written as null.
pub(crate) fn time(text: &str) -> Result<Option<String>, String> {
    Ok(read_time(text, false)?.map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
}

/// RFC 3339 with six digits of fraction in UTC.
pub(crate) fn micro_time(text: &str) -> Result<Option<String>, String> {
    Ok(read_time(text, true)?.map(|t| t.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()))
}

fn read_time(text: &str, micro: bool) -> Result<Option<Timestamp>, String> {
    let parsed = Layout { text, rest: text, micro }.read()?;
    let zero = parsed.to_zoned(TimeZone::UTC);
    let is_zero = zero.year() == 1 && zero.day_of_year() == 1 && parsed.as_second().rem_euclid(86_400) == 0;
    Ok((!is_zero).then_some(parsed))
}

/// Reads a time by Go's layout `2006-01-02T15:04:05Z07:00`, with Go's complaints.
struct Layout<'a> {
    text: &'a str,
    rest: &'a str,
    /// Whether seconds have six digits of fraction, no more and no less.
    micro: bool,
}

impl Layout<'_> {
    fn read(mut self) -> Result<Timestamp, String> {
        let year = self.digits(4, "2006")?;
        self.literal("-")?;
        let month = self.digits(2, "01")?;
        self.literal("-")?;
        let day = self.digits(2, "02")?;
        self.literal("T")?;
        let hour = self.digits(2, "15")?;
        self.literal(":")?;
        let minute = self.digits(2, "04")?;
        self.literal(":")?;
        let second = self.digits(2, "05")?;
        let nanos = if self.micro { self.micros()? } else { self.fraction() };
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            return Err(format!("parsing time {:?}: extra text: {:?}", self.text, self.rest));
        }
        for (value, max, what) in
            [(month - 1, 11, "month"), (hour, 23, "hour"), (minute, 59, "minute"), (second, 59, "second")]
        {
            if !(0..=max).contains(&value) {
                return Err(self.out_of_range(what));
            }
        }
        let day_error = || self.out_of_range("day");
        let narrow = |n: i64| i8::try_from(n).map_err(|_| day_error());
        let year = i16::try_from(year).map_err(|_| self.out_of_range("year"))?;
        let date = jiff::civil::Date::new(year, narrow(month)?, narrow(day)?).map_err(|_| day_error())?;
        let civil = date.at(narrow(hour)?, narrow(minute)?, narrow(second)?, nanos);
        let zoned = civil.to_zoned(TimeZone::UTC).map_err(|_| day_error())?;
        let shifted = zoned.timestamp().as_nanosecond() - i128::from(offset) * 1_000_000_000;
        Timestamp::from_nanosecond(shifted).map_err(|_| self.out_of_range("year"))
    }

    fn digits(&mut self, count: usize, element: &str) -> Result<i64, String> {
        let digits = self.rest.get(..count).filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
        let value = digits.and_then(|d| d.parse().ok()).ok_or_else(|| self.cannot(element))?;
        self.rest = &self.rest[count..];
        Ok(value)
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.cannot(literal))?;
        Ok(())
    }

    fn micros(&mut self) -> Result<i32, String> {
        let element = ".000000";
        let point = self.rest.starts_with(['.', ',']);
        let digits = self.rest.get(1..7).filter(|d| point && d.bytes().all(|b| b.is_ascii_digit()));
        let micros: i32 = digits.and_then(|d| d.parse().ok()).ok_or_else(|| self.cannot(element))?;
        self.rest = &self.rest[7..];
        Ok(micros * 1000)
    }

    /// Go takes a fraction of a second wherever seconds end, with a point or a comma.
    fn fraction(&mut self) -> i32 {
        let Some(rest) = self.rest.strip_prefix(['.', ',']) else { return 0 };
        let count = rest.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return 0;
        }
        let digits: String = rest[..count].chars().chain("000000000".chars()).take(9).collect();
        self.rest = &rest[count..];
        digits.parse().unwrap_or(0)
    }

    /// Seconds east of UTC.
    fn zone(&mut self) -> Result<i64, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let element = "Z07:00";
        let zone = self.rest.get(..6).filter(|z| z.as_bytes()[3] == b':').ok_or_else(|| self.cannot(element))?;
        let sign = match zone.as_bytes()[0] {
            b'+' => 1,
            b'-' => -1,
            _ => return Err(self.cannot(element)),
        };
        let part = |range: std::ops::Range<usize>, max: i64| {
            zone.get(range)
                .filter(|d| d.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|d| d.parse::<i64>().ok())
                .filter(|n| *n <= max)
        };
        match (part(1..3, 24), part(4..6, 60)) {
            (Some(hours), Some(minutes)) => {
                self.rest = &self.rest[6..];
                Ok(sign * (hours * 3600 + minutes * 60))
            }
            _ => Err(self.cannot(element)),
        }
    }

    fn cannot(&self, element: &str) -> String {
        let Self { text, rest, micro } = self;
        let fraction = if *micro { ".000000" } else { "" };
        format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05{fraction}Z07:00\": cannot parse {rest:?} as {element:?}"
        )
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {:?}: {what} out of range", self.text)
    }
}

const FORGIVING: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// The canonical base64 of what Go's decoder makes of this text; `None` if it is canonical already.
pub(crate) fn base64(text: &str) -> Result<Option<String>, String> {
    if STANDARD.decode(text).is_ok() {
        return Ok(None);
    }
    let plain: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match FORGIVING.decode(&plain) {
        Ok(bytes) => Ok(Some(STANDARD.encode(bytes))),
        Err(_) => Err(format!("illegal base64 data at input byte {}", first_illegal(text.as_bytes()))),
    }
}

/// Where Go's decoder stops.
fn first_illegal(text: &[u8]) -> usize {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    let mut in_group = 0;
    let mut at = 0;
    while let Some(byte) = text.get(at).copied() {
        match byte {
            b'\r' | b'\n' => {}
            b'=' if in_group >= 2 => {
                // One more is due after two letters, and nothing after that.
                let after = text[at + 1..].iter().position(|b| !matches!(b, b'\r' | b'\n')).map(|n| at + 1 + n);
                return match (in_group, after) {
                    (2, None) => text.len(),
                    (2, Some(next)) if text[next] == b'=' => next + 1,
                    (_, Some(next)) => next,
                    (_, None) => at,
                };
            }
            _ if letter(byte) => in_group = (in_group + 1) % 4,
            _ => return at,
        }
        at += 1;
    }
    at.saturating_sub(in_group)
}

/// A Go duration (`1h2m3.5s`) in the form Go writes it.
pub(crate) fn duration(text: &str) -> Result<String, String> {
    let nanos = parse_duration(text).ok_or_else(|| format!("time: invalid duration {text:?}"))?;
    Ok(format_duration(nanos))
}

/// Nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1i128, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0i128;
    while !rest.is_empty() {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, after) = rest.split_at(whole);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
            None => ("", after),
        };
        if (digits.is_empty() && fraction.is_empty()) || digits.len() > 18 {
            return None;
        }
        let (unit, after) = unit(after)?;
        total += digits.parse::<i128>().unwrap_or(0) * unit;
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            total += fraction.parse::<i128>().ok()? * unit / 10i128.pow(u32::try_from(fraction.len()).ok()?);
        }
        rest = after;
    }
    i64::try_from(sign * total).ok()
}

fn unit(text: &str) -> Option<(i128, &str)> {
    let units = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    units.iter().find_map(|(name, nanos)| text.strip_prefix(name).map(|rest| (*nanos, rest)))
}

pub(crate) fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    let decimal = |unit: u64| {
        let (whole, part) = (size / unit, size % unit);
        let width = unit.ilog10() as usize;
        let text = format!("{whole}.{part:0width$}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{size}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(1_000_000)),
        _ => {
            let minutes = size / 60_000_000_000;
            let rest = size % 60_000_000_000;
            let seconds = format!("{}.{:09}", rest / 1_000_000_000, rest % 1_000_000_000);
            let seconds = seconds.trim_end_matches('0').trim_end_matches('.');
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, m) => format!("{sign}{m}m{seconds}s"),
                (h, m) => format!("{sign}{h}h{m}m{seconds}s"),
            }
        }
    }
}
