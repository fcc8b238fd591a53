"""How tests share a machine when several workers run them (`-n 2`): who gets which, who needs the machine alone, and what is
said of those that passed only when they were tried again."""
import contextlib
import faulthandler
import fcntl
import os
import pathlib
import signal

import pytest

import retried
from center import HERE

RETRIED = pytest.StashKey[list]()
ALONE = "alone: measures time or takes all the machine has, so nothing else is tried meanwhile"


def pytest_configure(config):
    config.addinivalue_line("markers", ALONE)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """Writes down which tests were run again, and fails a run in which there are too many of them."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    before = retried.recorded()
    now = [retried.record("pytest", r.nodeid, r.longreprtext) for r in reporter.stats.get("rerun", [])]
    session.config.stash[RETRIED] = before + now
    if not retried.verdict(before + now)[0] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    """Why tests had to be run again, in this part of the run and in the parts before it."""
    found = config.stash.get(RETRIED, [])
    for each in found:
        terminalreporter.section(f"run again by {each['runner']}: {each['test']}")
        terminalreporter.line(each["reason"])
    if found:
        fine, said = retried.verdict(found)
        terminalreporter.line("")
        terminalreporter.line(said, red=not fine, yellow=fine)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """What needs an etcd comes last: so each worker changes from one shared center to the other once, not with every file."""
    items.sort(key=lambda item: on_etcd(item.nodeid))


def on_etcd(nodeid):
    return "[etcd" in nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        """A file's tests share servers, so they go to one worker, in their order; but apart for each store."""

        def _split_scope(self, nodeid):
            return nodeid.split("::", 1)[0] + (" on etcd" if on_etcd(nodeid) else "")

    # In the order of collection; xdist would begin with the files that have the most tests.
    config.option.loadscopereorder = False
    return ByFile(config, log)


@contextlib.contextmanager
def noted(nodeid):
    """Lets tools/watchdog, which may have started this, know which test runs here; on a signal, also where it is."""
    directory = os.environ.get("WATCHDOG_NOTES")
    if not directory:
        yield
        return
    note = pathlib.Path(directory) / f"{os.getpid()}.test"
    with contextlib.suppress(OSError):
        note.write_text(nodeid)
    with open(note.with_suffix(".stack"), "w") as stack:
        faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
        try:
            yield
        finally:
            faulthandler.unregister(signal.SIGUSR1)
            for file in (note, note.with_suffix(".stack")):
                file.unlink(missing_ok=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Waits for the machine, before the test's time begins to run. Locked are files that are there anyway."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with noted(item.nodeid):
            return (yield)
    with open(HERE / "conftest.py") as door, open(HERE / "pytest.ini") as room:
        # Whoever wants to be alone keeps the door while the others leave; otherwise they would go in and out for ever.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        with noted(item.nodeid):
            return (yield)
