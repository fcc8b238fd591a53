"""Tests that passed only when they were run again: tools/unit and tests/workers.py write them down here, and the end of
a run shows all of them. RETRIED names the file that the parts of one `make test` share."""
import json
import os
import pathlib

# More tests than this in one run are no accident of a busy machine: the run fails.
MAX_RETRIED = 3
MAX_REASON_LINES = 30


def record(runner, test, reason):
    """Writes one test down with the end of what it said when it failed."""
    file = os.environ.get("RETRIED")
    line = {"runner": runner, "test": test, "reason": "\n".join(reason.strip().splitlines()[-MAX_REASON_LINES:])}
    if file:
        with open(file, "a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
    return line


def recorded():
    """What all parts of this run have written down so far."""
    file = os.environ.get("RETRIED")
    if not file or not pathlib.Path(file).exists():
        return []
    return [json.loads(line) for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines()]


def verdict(records):
    """(whether the run may pass, what is to be said of it)."""
    tests = sorted({(r["runner"], r["test"]) for r in records})
    said = f"{len(tests)} tests were run again; at most {MAX_RETRIED} may be in one run"
    return len(tests) <= MAX_RETRIED, said
