//! Panics are caught, logged with the name of the task, and counted.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind},
    sync::Once,
};

use crate::Kind;

pub(crate) type Payload = Box<dyn Any + Send>;

thread_local! {
    static LOCATION: Cell<Option<Box<str>>> = const { Cell::new(None) };
}

/// Notes where a panic happens, so that the log line of a task's panic has the file and line. To be called once at
/// start; what printed panics before still does.
pub fn record_locations() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            let location = info.location().map(|at| at.to_string().into_boxed_str());
            // A thread that is about to end has no locals any more.
            let _ = LOCATION.try_with(|last| last.set(location));
            former(info);
        }));
    });
}

/// Runs one poll (or a whole blocking function) of a task. A panic is logged and counted.
#[inline]
pub(crate) fn guarded<R>(kind: &'static Kind, run: impl FnOnce() -> R) -> Result<R, Payload> {
    guarded_call(kind, || {
        kind.injected.poll(kind.name());
        run()
    })
}

/// The same for what is no poll: no panic is injected here.
pub(crate) fn guarded_call<R>(kind: &'static Kind, run: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(run)).inspect_err(|payload| report(kind, payload))
}

#[cold]
fn report(kind: &Kind, payload: &Payload) {
    kind.count_panic();
    let location = LOCATION.try_with(Cell::take).ok().flatten();
    tracing::error!(task = kind.name(), panic = message(payload), location = location.as_deref(), "a task panicked");
}

pub(crate) fn message(payload: &Payload) -> &str {
    match (payload.downcast_ref::<&'static str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "the panic has no message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_panics_are_read() {
        static KIND: Kind = Kind::new("panics-messages");
        let said = |run: fn()| message(&guarded(&KIND, run).unwrap_err()).to_owned();
        assert_eq!(said(|| panic!("plain")), "plain");
        assert_eq!(said(|| panic!("{} {}", "made", 1)), "made 1");
        assert_eq!(said(|| std::panic::panic_any(7)), "the panic has no message");
        assert_eq!(guarded(&KIND, || 7).ok(), Some(7));
    }
}
