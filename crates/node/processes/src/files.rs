//! How many files this program may have open, and how many its containers may.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit};

/// Tells the keeper the limit that its agent began with.
pub const VARIABLE: &str = "SELVEDGE_OPEN_FILES";
/// Containers get no more by default: programs that go through all possible files would take long otherwise.
const MOST: u64 = 1024;

static BEFORE: OnceLock<u64> = OnceLock::new();

/// Lets this process have as many files open as the system allows. Containers still begin with the limit that was
/// there before.
pub fn raise_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if let Some(current) = limit.current {
        let _ = BEFORE.set(current);
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files cannot be raised: fewer connections are possible");
    }
}

/// What the keeper is told.
pub(crate) fn to_pass_on() -> Option<String> {
    BEFORE.get().map(u64::to_string)
}

/// The limit of containers, from what the keeper was told and the limit that it has itself.
pub(crate) fn of_containers(told: Option<&str>, current: Option<u64>) -> Option<u64> {
    let told = told.and_then(|text| text.parse().ok());
    told.or(current).map(|limit: u64| limit.min(MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_get_what_there_was_before() {
        for (told, current, expected) in [
            (Some("512"), Some(1 << 20), Some(512)),
            (Some("4096"), Some(1 << 20), Some(1024)),
            (None, Some(300), Some(300)),
            (None, Some(1 << 20), Some(1024)),
            (Some("nonsense"), None, None),
        ] {
            assert_eq!(of_containers(told, current), expected, "{told:?} {current:?}");
        }
    }
}
