//! Schedules as CronJobs have them: five fields or a name such as `@hourly`, and when they come next. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Zoned, civil::Date, tz::TimeZone};

/// A schedule that matches no day within so many days never will, such as the 30th of February: 29th of Februaries are
/// eight years apart around 2100.
const PATIENCE_DAYS: u32 = 366 * 9;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    Fields(Fields),
    /// `@every 90s`: from the last time on.
    Every(Duration),
}

/// A bit for each value that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// If neither field of days is a star, either of them is enough.
    either_day: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unparseable(String);

impl Schedule {
    pub fn parse(text: &str) -> Result<Self, Unparseable> {
        let text = text.trim();
        if text.len() > 1024 {
            return Err(Unparseable("a schedule has at most 1024 characters".into()));
        }
        if let Some(name) = text.strip_prefix('@') {
            return named(name);
        }
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(Unparseable(format!("expected exactly 5 fields, found {}: {text:?}", fields.len())));
        };
        let (days, any_day) = field(days, 1, 31, &[], 0)?;
        let (weekdays, any_weekday) = field(weekdays, 0, 6, &DAYS, 0)?;
        Ok(Self::Fields(Fields {
            minutes: field(minutes, 0, 59, &[], 0)?.0,
            hours: field(hours, 0, 23, &[], 0)?.0,
            days,
            months: field(months, 1, 12, &MONTHS, 1)?.0,
            weekdays,
            either_day: !any_day && !any_weekday,
        }))
    }

    /// The first time after this one, by the clock of a place.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(every) => {
                let whole = Timestamp::from_second(after.as_second()).ok()?;
                whole.checked_add(SignedDuration::try_from(*every).ok()?).ok()
            }
            Self::Fields(fields) => fields.next(after, zone),
        }
    }
}

impl Fields {
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let minute = after.as_second().div_euclid(60).checked_add(1)?.checked_mul(60)?;
        let mut at = Timestamp::from_second(minute).ok()?.to_zoned(zone.clone());
        for _ in 0..PATIENCE_DAYS {
            let date = at.date();
            if !self.is_day(date) {
                at = start_of_next_day(date, zone)?;
                continue;
            }
            // Hours and minutes go on by the clock of the world, so that an hour that there is twice counts twice, and
            // one that a place leaves out is left out.
            while at.date() == date {
                if !has(self.hours, at.hour()) {
                    let rest = 60 - i64::from(at.minute());
                    at = at.checked_add(SignedDuration::from_mins(rest)).ok()?;
                } else if !has(self.minutes, at.minute()) {
                    at = at.checked_add(SignedDuration::from_mins(1)).ok()?;
                } else {
                    return Some(at.timestamp());
                }
            }
        }
        None
    }

    fn is_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        has(self.months, date.month()) && if self.either_day { day || weekday } else { day && weekday }
    }
}

fn start_of_next_day(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.tomorrow().ok()?.to_zoned(zone.clone()).ok()
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| value < 64 && bits >> value & 1 == 1)
}

fn named(name: &str) -> Result<Schedule, Unparseable> {
    let fields = match name {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * 0",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        _ => {
            let unknown = || Unparseable(format!("unrecognized descriptor: @{name}"));
            let every = name.strip_prefix("every ").ok_or_else(unknown)?;
            let every = duration(every.trim())
                .ok_or_else(|| Unparseable(format!("{every:?} is no duration: write it as in 90s, 15m or 1h30m")))?;
            return Ok(Schedule::Every(every));
        }
    };
    Schedule::parse(fields)
}

/// `1h30m`, rounded down to seconds, and at least one.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut seconds) = (text, 0u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit =
            rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(&rest[digits..], |n| &rest[digits..digits + n]);
        let each = match unit {
            "h" => 3600,
            "m" => 60,
            "s" => 1,
            "ms" | "us" | "ns" => 0,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(each)?)?;
        rest = &rest[digits + unit.len()..];
    }
    // A century: longer ones would only overflow later.
    (seconds < 3600 * 24 * 36525).then(|| Duration::from_secs(seconds.max(1)))
}

/// The values of one field, and whether it is a star.
fn field(text: &str, min: u32, max: u32, names: &[&str], first: u32) -> Result<(u64, bool), Unparseable> {
    let (mut bits, mut star) = (0, false);
    for part in text.split(',') {
        let wrong = |why: &str| Unparseable(format!("{why}: {part:?}"));
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => {
                let step: u32 = step.parse().map_err(|_| wrong("no number of steps"))?;
                (
                    range,
                    Some(step)
                        .filter(|step| *step > 0)
                        .ok_or_else(|| wrong("step of range should be a positive number"))?
                        .into(),
                )
            }
        };
        let value = |text: &str| {
            let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
            let named = named.and_then(|at| u32::try_from(at).ok()).map(|at| at + first);
            let number = || text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
            named.or_else(number).ok_or_else(|| wrong("failed to parse"))
        };
        let (from, to) = if range == "*" || range == "?" {
            star |= step.is_none_or(|step| step == 1);
            (min, max)
        } else if let Some((from, to)) = range.split_once('-') {
            (value(from)?, value(to)?)
        } else {
            let from = value(range)?;
            (from, if step.is_some() { max } else { from })
        };
        if from < min {
            return Err(wrong(&format!("beginning of range ({from}) below minimum ({min})")));
        }
        if to > max {
            return Err(wrong(&format!("end of range ({to}) above maximum ({max})")));
        }
        if from > to {
            return Err(wrong(&format!("beginning of range ({from}) beyond end of range ({to})")));
        }
        for value in (from..=to).step_by(usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX)) {
            bits |= 1 << value;
        }
    }
    Ok((bits, star))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn next(schedule: &str, after: &str, zone: &str) -> String {
        let zone = TimeZone::get(zone).unwrap();
        let next = Schedule::parse(schedule).unwrap().next(at(after), &zone);
        next.map_or("never".to_owned(), |next| next.to_string())
    }

    #[test]
    fn when_it_comes_next() {
        for (schedule, after, expected) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "2026-01-01T00:00:59.9Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T00:14:00Z", "2026-01-01T00:15:00Z"),
            ("5/15 * * * *", "2026-01-01T00:21:00Z", "2026-01-01T00:35:00Z"),
            ("0 4 * * *", "2026-01-01T04:00:00Z", "2026-01-02T04:00:00Z"),
            ("30 3-5 * jan,JUL mon-Fri", "2026-02-01T00:00:00Z", "2026-07-01T03:30:00Z"),
            ("0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 13 * ?", "2026-01-14T00:00:00Z", "2026-02-13T00:00:00Z"),
            ("0 0 */1 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 29 2 *", "2097-01-01T00:00:00Z", "2104-02-29T00:00:00Z"),
            ("0 0 30 2 *", "2026-01-01T00:00:00Z", "never"),
            ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@every 1h30m", "2026-01-01T00:00:01.5Z", "2026-01-01T01:30:01Z"),
        ] {
            assert_eq!(next(schedule, after, "UTC"), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn by_the_clock_of_a_place() {
        if TimeZone::get("Europe/Berlin").is_err() {
            return; // a machine without a database of time zones
        }
        for (schedule, after, expected) in [
            ("0 4 * * *", "2026-01-01T00:00:00Z", "2026-01-01T03:00:00Z"),
            ("0 4 * * *", "2026-07-01T00:00:00Z", "2026-07-01T02:00:00Z"),
            // The night in which 02:30 is left out, and the one that has it twice.
            ("30 2 * * *", "2026-03-29T00:00:00Z", "2026-03-30T00:30:00Z"),
            ("30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
            ("30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        ] {
            assert_eq!(next(schedule, after, "Europe/Berlin"), expected, "{schedule} after {after}");
        }
    }

    #[test]
    fn what_is_no_schedule() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "*/0 * * * *",
            "5-1 * * * *",
            "a * * * *",
            "* * * foo *",
            "1,,2 * * * *",
            "-1 * * * *",
            "+1 * * * *",
            "@never",
            "@every",
            "@every x",
            "@every 5",
            "1/ * * * *",
            "@every 99999999999999999999h",
        ] {
            assert!(Schedule::parse(text).is_err(), "{text:?}");
        }
    }

    /// Whether a text of one field means a value: another way than bits.
    fn means(text: &str, value: u32, min: u32, max: u32) -> bool {
        text.split(',').any(|part| {
            let (range, step) = part.split_once('/').map_or((part, 1), |(range, step)| (range, step.parse().unwrap()));
            let (from, to) = match range.split_once('-') {
                Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
                None if range == "*" => (min, max),
                None => (range.parse().unwrap(), if part.contains('/') { max } else { range.parse().unwrap() }),
            };
            value >= from && value <= to && (value - from).is_multiple_of(step)
        })
    }

    fn some_field(min: u32, max: u32) -> impl Strategy<Value = String> {
        let one = prop_oneof![
            3 => Just("*".to_owned()),
            2 => (min..=max).prop_map(|n| n.to_string()),
            1 => (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
            1 => (1u32..20).prop_map(|step| format!("*/{step}")),
            1 => (min..=max, 1u32..20).prop_map(|(a, step)| format!("{a}/{step}")),
        ];
        proptest::collection::vec(one, 1..3).prop_map(|parts| parts.join(","))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against going through all minutes.
        #[test]
        fn nothing_is_missed(
            minutes in some_field(0, 59), hours in some_field(0, 23), days in some_field(1, 31),
            months in some_field(1, 12), weekdays in some_field(0, 6), start in 1_700_000_000i64..1_900_000_000,
        ) {
            let schedule = Schedule::parse(&format!("{minutes} {hours} {days} {months} {weekdays}")).unwrap();
            let start = Timestamp::from_second(start).unwrap();
            let next = schedule.next(start, &TimeZone::UTC);
            let star = |text: &str| text.split(',').any(|part| part == "*" || part == "*/1");
            let both = star(&days) || star(&weekdays);
            let mut at = start.as_second().div_euclid(60) * 60 + 60;
            for _ in 0..60 * 24 * 3 {
                let moment = Timestamp::from_second(at).unwrap();
                if next == Some(moment) {
                    break;
                }
                let local = moment.to_zoned(TimeZone::UTC);
                let unsigned = |n: i8| u32::try_from(n).unwrap();
                let day = means(&days, unsigned(local.day()), 1, 31);
                let weekday = means(&weekdays, unsigned(local.weekday().to_sunday_zero_offset()), 0, 6);
                let matches = means(&minutes, unsigned(local.minute()), 0, 59)
                    && means(&hours, unsigned(local.hour()), 0, 23)
                    && means(&months, unsigned(local.month()), 1, 12)
                    && if both { day && weekday } else { day || weekday };
                prop_assert!(!matches, "{moment} was missed, next is {next:?}");
                at += 60;
            }
        }

        #[test]
        fn nothing_panics(text in ".{0,40}", after in any::<i32>()) {
            if let Ok(schedule) = Schedule::parse(&text) {
                let _ = schedule.next(Timestamp::from_second(i64::from(after)).unwrap(), &TimeZone::UTC);
            }
        }
    }
}
