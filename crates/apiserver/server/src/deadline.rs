//! `?timeout=`: how long a client is willing to wait for the answer of a request that does not go on by itself.

use std::{future::Future, time::Duration};

use request::{Query, Route, Verb};
use schema::status::{Result, Status};

use crate::{call::Call, reply::Reply};

/// Nobody may ask for more than upstream's server waits for anything. Asking for more, or for nothing, is asking for
/// this.
const LONGEST: Duration = Duration::from_secs(60);

/// Refuses a timeout that is none. Requests that go on for as long as both ends like have no use for one.
pub fn check(method: &http::Method, route: &Route, query: &Query) -> Result<()> {
    if !query.has("timeout") || goes_on(method, route, query) {
        return Ok(());
    }
    timeout(query).map(drop)
}

fn goes_on(method: &http::Method, route: &Route, query: &Query) -> bool {
    let Route::Resource(target) = route else { return false };
    matches!(target.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward")
        || Verb::of(method, target, query) == Some(Verb::Watch)
}

fn timeout(query: &Query) -> Result<Option<Duration>> {
    let text = query.get("timeout");
    if text.is_empty() {
        return Ok(None);
    }
    let asked = nanoseconds(text)
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - time: {why}")))?;
    let asked = u64::try_from(asked).map_or(Duration::ZERO, Duration::from_nanos);
    Ok(Some(asked).filter(|asked| !asked.is_zero() && *asked < LONGEST))
}

/// Does what a request asks for, within the time that the client gives it.
pub async fn within(call: &Call, verb: Verb, work: impl Future<Output = Result<Reply>>) -> Result<Reply> {
    let asked = if verb == Verb::Watch || !call.query.has("timeout") { None } else { timeout(&call.query)? };
    let work = std::pin::pin!(work);
    let Some(asked) = asked else { return work.await };
    tokio::time::timeout(asked, work).await.unwrap_or_else(|_| Err(missed(verb)))
}

fn missed(verb: Verb) -> Status {
    let why = match verb {
        Verb::Get | Verb::List | Verb::Watch => "request did not complete within the allotted timeout",
        _ => "request did not complete within requested timeout - context deadline exceeded",
    };
    Status::new(504, "Timeout", format!("Timeout: {why}")).with_causes(Vec::new())
}

/// A duration as Go writes it: `300ms`, `-1.5h`, `2h45m`. Fails with Go's words.
fn nanoseconds(text: &str) -> Result<i64, String> {
    let invalid = || format!("invalid duration {text:?}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, behind) = rest.split_at(digits(rest));
        let (fraction, behind) = match behind.strip_prefix('.') {
            Some(behind) => behind.split_at(digits(behind)),
            None => ("", behind),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = behind.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(behind.len());
        let (name, behind) = behind.split_at(end);
        let unit: u64 = match name {
            "" => return Err(format!("missing unit in duration {text:?}")),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(format!("unknown unit {name:?} in duration {text:?}")),
        };
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let part = fraction
            .bytes()
            .take(18)
            .fold((0u64, 1u64), |(value, scale), digit| (value * 10 + u64::from(digit - b'0'), scale * 10));
        // A part of one unit: less than 2^62, so the product fits.
        let part = u128::from(part.0) * u128::from(unit) / u128::from(part.1);
        let sum = whole.checked_mul(unit).and_then(|sum| sum.checked_add(u64::try_from(part).ok()?));
        total = sum.and_then(|sum| total.checked_add(sum)).ok_or_else(invalid)?;
        rest = behind;
    }
    let total = i64::try_from(total).map_err(|_| invalid())?;
    Ok(if negative { -total } else { total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_go_reads_them() {
        for (text, want) in [
            ("0", 0),
            ("5s", 5_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("2m3ms", 120_003_000_000),
            ("-1h", -3_600_000_000_000),
            ("+7us", 7_000),
        ] {
            assert_eq!(nanoseconds(text), Ok(want), "{text}");
        }
        for (text, why) in [
            ("invalid", "invalid duration \"invalid\""),
            ("", "invalid duration \"\""),
            ("-", "invalid duration \"-\""),
            (".s", "invalid duration \".s\""),
            ("5", "missing unit in duration \"5\""),
            ("1s5", "missing unit in duration \"1s5\""),
            ("5x", "unknown unit \"x\" in duration \"5x\""),
            ("5 s", "unknown unit \" s\" in duration \"5 s\""),
            ("99999999999999h", "invalid duration \"99999999999999h\""),
        ] {
            assert_eq!(nanoseconds(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_asked_for_and_what_is_given() {
        let given = |query: &str| timeout(&Query::parse(Some(query))).unwrap();
        assert_eq!(given("timeout=2s"), Some(Duration::from_secs(2)));
        for none in ["timeout=0s", "timeout=3m", "timeout=60s", "timeout=-1s", "timeout=", "x=1"] {
            assert_eq!(given(none), None, "{none}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_odd(text in ".{0,24}") {
            let _ = nanoseconds(&text);
        }
    }
}
