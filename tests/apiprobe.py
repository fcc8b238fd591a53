"""Runs the differential suite against a fresh center and prints a table by area (`make apiprobe`).

The scenarios and what Kubernetes 1.36 answered to them are in tests/data/apiprobe; APIPROBE names another directory
with `scenarios/` and `golden/`. `check()` is what the test uses: which failing steps are not in apiprobe-known.txt, and
which listed ones pass.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from center import HERE, running

# What we lack on purpose (workload controllers) is waited for in vain: less than the suite would by itself.
PATIENCE = os.environ.get("APIPROBE_PATIENCE", "0.4")
KNOWN = HERE / "apiprobe-known.txt"


def suite():
    """The directory with the scenarios and the recorded answers."""
    return pathlib.Path(os.environ.get("APIPROBE") or HERE / "data" / "apiprobe")


def probe(center, *scenarios):
    """Runs the suite; (report, text). The report maps each area to passed, total, and the failed steps."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        with_cert = ["--cert", str(center.cert), "--key", str(center.key)]
        credential = ["--token", center.token] if center.token else with_cert
        done = subprocess.run(
            [sys.executable, HERE / "apiprobe_run.py", "check", "--set", suite(), "--server", center.url,
             "--ca", center.ca, *credential, "--json", out.name, "--patience", PATIENCE, *scenarios],
            capture_output=True, text=True, timeout=600)
        try:
            return json.load(open(out.name))["scenarios"], done.stdout
        except (ValueError, KeyError):
            raise SystemExit(f"apiprobe ended with {done.returncode}\n{done.stdout}\n{done.stderr}") from None


def failing(report):
    return [f"{area}: {step['step']}" for area, r in report.items() for step in r["failed"]]


def known():
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    return [line.split("  # ")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def table(report):
    rows = [(area, r["passed"], r["total"]) for area, r in report.items()]
    rows.append(("all", sum(r[1] for r in rows), sum(r[2] for r in rows)))
    yield f"{'area':<16}{'passed':>8}{'asserted':>10}{'percent':>9}"
    for area, passed, total in rows:
        yield f"{area:<16}{passed:>8}{total:>10}{100 * passed / max(total, 1):>8.1f}%"


def check(report):
    fails, listed = failing(report), known()
    return [f for f in fails if f not in listed], [k for k in listed if k not in fails]


def rewrite(report):
    """Replaces the list by what fails now, keeping the reasons already given."""
    old = {line.split("  # ")[0].strip(): line for line in (KNOWN.read_text().splitlines() if KNOWN.exists() else [])}
    head = ["# Steps of apiprobe that do not pass yet. `make test` fails when another one does, so this only gets shorter.",
            "# After two spaces, `# why` may follow. `make apiprobe ARGS=--rewrite` writes the list anew."]
    KNOWN.write_text("\n".join(head + [old.get(f, f) for f in failing(report)]) + "\n")


def main():
    args = sys.argv[1:]
    with running() as center:
        report, text = probe(center, *[a for a in args if not a.startswith("-")])
    print(text if "-v" in args else "", end="")
    print("\n".join(table(report)))
    if "--rewrite" in args:
        return rewrite(report)
    fell, _ = check(report)
    for step in fell:
        print("not in tests/apiprobe-known.txt:", step)
    sys.exit(1 if fell else 0)


if __name__ == "__main__":
    main()
