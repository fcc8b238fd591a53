"""tools/watchdog: what hangs is named and ended, and what does not hang is left alone."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from center import HERE, wait_for

WATCHDOG = HERE.parent / "tools" / "watchdog"


def watch(*options, command, env=None, seconds=40):
    env = {**os.environ, **(env or {})}
    return subprocess.run([WATCHDOG, "step", "--grace", "1", *options, "--", *command], capture_output=True, text=True, timeout=seconds, env=env)


def is_there(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


def test_output_and_exit_code_are_the_commands():
    done = watch(command=["sh", "-c", "echo out; echo err >&2; test -t 0; cat; kill -9 $$"])
    assert (done.returncode, done.stdout, done.stderr) == (137, "out\n", "err\n")
    assert watch(command=["sh", "-c", "sleep 0.3; exit 7"]).returncode == 7
    assert watch(command=["/not/there"]).returncode == 127


def test_what_others_hold_open_does_not_keep_it():
    """A server that a test leaves behind has its output."""
    begun = time.monotonic()
    done = watch(command=["sh", "-c", "sleep 30 & echo $!"])
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.returncode == 0 and time.monotonic() - begun < 20


@pytest.mark.parametrize("options, env, why", [
    (("--silence", "1"), {}, "wrote nothing for 1 s"),
    (("--total", "1"), {}, "was not done in time"),
    ((), {"WATCHDOG_UNTIL": "+1"}, "was not done in time"),
], ids=["silence", "total", "until"])
def test_what_hangs_is_named_and_ended(options, env, why):
    env = {name: str(time.time() + int(value)) for name, value in env.items()}
    # One ignores SIGTERM, one has left its session and lost its parent.
    script = """
    sh -c 'trap "" TERM; echo $$; sleep 1000; sleep 1001' & (setsid sleep 1002 & echo $!) & wait
    """
    done = watch(*options, command=["sh", "-c", script], env=env)
    assert done.returncode == 124, done
    assert f"watchdog: step {why}" in done.stderr
    for part in ("sleep 1000", "sleep 1002", "threads: sleep"):
        assert part in done.stderr, done.stderr
    assert "sleep 1001" not in done.stderr.replace("sleep 1000; sleep 1001", "")
    assert not [pid for pid in done.stdout.split() if is_there(pid)], done.stdout


def test_what_talks_does_not_hang():
    done = watch("--silence", "2", command=["sh", "-c", "for n in 1 2 3 4 5 6; do echo $n; sleep 0.5; done"])
    assert done.returncode == 0, done.stderr


def test_a_test_that_hangs_is_named(tmp_path):
    (tmp_path / "test_odd.py").write_text(
        "import time\n\ndef test_fine():\n    pass\n\ndef test_hangs():\n    wait_for_ever()\n\ndef wait_for_ever():\n    time.sleep(1000)\n")
    command = [sys.executable, "-m", "pytest", "-p", "workers", "-p", "no:cacheprovider", "-q", "-c", "/dev/null", "--rootdir", tmp_path, tmp_path]
    env = {"PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    env["PYTEST_XDIST_WORKER"] = ""
    done = watch("--silence", "4", command=map(str, command), env=env)
    assert done.returncode == 124, done
    assert "test_odd.py::test_hangs, for" in done.stderr and "test_fine" not in done.stderr, done.stderr
    assert "in wait_for_ever" in done.stderr, done.stderr


def test_a_test_of_rust_that_hangs_is_named(tmp_path):
    """Its runner says which are slow; only those that still run are ended for it."""
    said = "test %s has been running for over 60 seconds"
    script = f"""
import ctypes, threading, time
def test():
    ctypes.CDLL(None).prctl(15, b"one::tests::hangs_for_ever")
    time.sleep(1000)
threading.Thread(target=test).start()
print("{said % "two::tests::was_only_slow"}", "{said % "one::tests::hangs_for_ever"}", sep="\\n", flush=True)
while True:
    time.sleep(0.2)
    print(".", end="", flush=True)
"""
    done = watch("--test", "1", command=[sys.executable, "-c", script])
    assert done.returncode == 124, done
    # Of a thread's name there is only a beginning.
    assert "watchdog: step hangs in the test one::tests::hangs_for_ever" in done.stderr and "one::tests::han in" in done.stderr, done.stderr
    assert watch("--test", "1", command=["sh", "-c", f"echo {said % 'one::gone'}; sleep 3"]).returncode == 0


def test_who_ends_it_ends_the_command():
    process = subprocess.Popen([WATCHDOG, "step", "--", "sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    try:
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
        wait_for("its command to be gone", lambda: not is_there(pid), 10)
    finally:
        process.kill()
        process.wait(30)
