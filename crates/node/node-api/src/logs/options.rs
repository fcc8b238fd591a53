//! What of a log is asked for, as a kubelet is asked. Pure.

use jiff::{SignedDuration, Timestamp};

use super::line::{Picker, Stream};
use crate::route::Query;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub tail: Option<u64>,
    pub limit: Option<u64>,
    pub since: Option<Timestamp>,
    pub stream: Stream,
}

impl Options {
    /// What is wrong with the query otherwise.
    pub fn parse(query: &Query, now: Timestamp) -> Result<Self, String> {
        let number = |name: &str, least: i64| match query.get(name) {
            None | Some("") => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(number) if number >= least => Ok(Some(number)),
                _ => Err(format!("{name}: {text:?} is no number from {least} on")),
            },
        };
        let seconds = number("sinceSeconds", 1)?;
        let time = match query.get("sinceTime") {
            None | Some("") => None,
            Some(text) => Some(text.parse().map_err(|_| format!("sinceTime: {text:?} is no time of RFC 3339"))?),
        };
        if seconds.is_some() && time.is_some() {
            return Err("at most one of sinceTime or sinceSeconds may be specified".to_owned());
        }
        let ago = |seconds| now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
        let unsigned = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        Ok(Self {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail: unsigned(number("tailLines", 0)?),
            limit: unsigned(number("limitBytes", 1)?),
            since: time.or(seconds.map(ago)),
            stream: match query.get("stream") {
                None | Some("" | "All") => Stream::All,
                Some("Stdout") => Stream::Stdout,
                Some("Stderr") => Stream::Stderr,
                Some(other) => return Err(format!("stream: {other:?} is none of All, Stdout, Stderr")),
            },
        })
    }

    pub fn picker(&self) -> Picker {
        Picker::new(self.since, self.stream, self.timestamps, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let read = |query| Options::parse(&Query::parse(Some(query)), now);
        assert_eq!(read(""), Ok(Options::default()));
        assert_eq!(
            read("follow=true&previous=1&timestamps=false&tailLines=0&limitBytes=7&sinceSeconds=5&stream=Stderr"),
            Ok(Options {
                follow: true,
                previous: true,
                timestamps: false,
                tail: Some(0),
                limit: Some(7),
                since: Some("2026-01-02T03:04:00Z".parse().unwrap()),
                stream: Stream::Stderr,
            })
        );
        let at = read("sinceTime=2026-01-02T02%3A04%3A05%2B01:00").unwrap();
        assert_eq!(at.since, Some("2026-01-02T01:04:05Z".parse().unwrap()));
        assert_eq!(read("sinceSeconds=9223372036854775807").unwrap().since, Some(Timestamp::MIN));
        for wrong in [
            "tailLines=-1",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceTime=x",
            "stream=x",
            "sinceSeconds=1&sinceTime=2026-01-02T02:04:05Z",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
