//! The time, in the forms that objects carry it.

pub mod rarely;

use std::time::{SystemTime, UNIX_EPOCH};

pub fn unix() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// `2026-01-02T03:04:05Z`
pub fn now() -> String {
    at(unix())
}

/// The same to the microsecond, as Leases have it.
pub fn precise() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// When a time of an object is, in seconds.
pub fn seconds(time: &str) -> Option<i64> {
    time.parse::<jiff::Timestamp>().ok().map(|time| time.as_second())
}

pub fn at(unix: i64) -> String {
    jiff::Timestamp::from_second(unix).map(|t| t.to_string()).unwrap_or_default()
}
