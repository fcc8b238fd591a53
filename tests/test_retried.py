"""Tests that pass only when run again are written down with their reasons, and a run with many of them fails."""
import json
import os
import shutil
import subprocess
import sys

import pytest

from center import HERE, ROOT
from retried import MAX_RETRIED

FLAKY = """
import pathlib
import pytest

@pytest.mark.parametrize("n", range({count}))
def test_flaky(n):
    mark = pathlib.Path(__file__).with_name(f"ran-{{n}}")
    again = mark.exists()
    mark.touch()
    assert again, f"the first try of {{n}}"

def test_steady():
    pass
"""

# Fails the first time as `cargo test` does, and passes with `--exact`.
CARGO = """#!/bin/sh
case "$*" in
*--exact*) echo 'test result: ok. 1 passed; 0 failed' ;;
*) cat <<'END'
test result: FAILED. 3 passed; 1 failed

failures:

---- tests::races stdout ----
thread 'tests::races' panicked at src/lib.rs:1:
waited in vain


failures:
    tests::races

error: 1 target failed:
    `-p some --lib`
END
exit 101 ;;
esac
"""


def run_pytest(directory, count, *args, **env):
    directory.mkdir()
    # With copies of the plugin, which locks files beside itself: the outer run holds those of this directory.
    for name in ("center.py", "retried.py", "workers.py"):
        shutil.copy(HERE / name, directory)
    (directory / "conftest.py").touch()
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "test_them.py").write_text(FLAKY.format(count=count))
    env = {**os.environ, "PYTHONPATH": str(ROOT / ".tools/python"), "RETRIED": str(directory / "retried.jsonl"), **env}
    env.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "workers", "--reruns", "1", *args]
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=60)
    file = directory.parent / env["RETRIED"]
    return done, [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("args", [(), ("-n", "2")], ids=["one", "two-workers"])
def test_a_few_are_shown_and_more_fail_the_run(tmp_path, args):
    done, found = run_pytest(tmp_path / "none", 0, *args)
    assert done.returncode == 0 and not found and "run again" not in done.stdout, done.stdout
    done, found = run_pytest(tmp_path / "few", MAX_RETRIED, *args)
    assert done.returncode == 0, done.stdout
    assert sorted(r["test"] for r in found) == [f"test_them.py::test_flaky[{n}]" for n in range(MAX_RETRIED)]
    for n in range(MAX_RETRIED):
        assert f"run again by pytest: test_them.py::test_flaky[{n}]" in done.stdout
        assert f"the first try of {n}" in done.stdout
    done, found = run_pytest(tmp_path / "many", MAX_RETRIED + 1, *args)
    assert done.returncode == 1 and len(found) == MAX_RETRIED + 1, done.stdout
    assert f"{MAX_RETRIED + 1} tests were run again; at most {MAX_RETRIED} may be" in done.stdout


def test_unit_tests_count_as_well(tmp_path):
    cargo, file = tmp_path / "cargo", tmp_path / "retried.jsonl"
    cargo.write_text(CARGO)
    cargo.chmod(0o755)
    env = {**os.environ, "CARGO": str(cargo), "RETRIED": str(file)}
    done = subprocess.run([ROOT / "tools/unit"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    (only,) = map(json.loads, file.read_text().splitlines())
    assert (only["runner"], only["test"]) == ("unit", "tests::races") and only["reason"].endswith("waited in vain")
    # Together with three of pytest's there are too many.
    done, found = run_pytest(tmp_path / "more", MAX_RETRIED, RETRIED=str(file))
    assert done.returncode == 1 and len(found) == MAX_RETRIED + 1, done.stdout
    assert "run again by unit: tests::races" in done.stdout and "waited in vain" in done.stdout
