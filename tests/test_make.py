"""Targets of the Makefile that no other test runs: their recipes can be made, the programs in them take the options
that they are given, and what `make deny` would refuse is not among the dependencies."""
import os
import re
import subprocess
import sys
import tomllib

import pytest

from center import ROOT

TARGETS = ["bench", "bench-quick", "layout", "generate", "deny", "torture", "link-torture", "apiprobe",
           "release", "clean"]


def recipe(target):
    # Without what the `make` around this test says of itself.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("\\\n", " ")


@pytest.mark.parametrize("target", TARGETS)
def test_a_recipe_can_be_made(target):
    assert recipe(target).strip(), f"make {target} would do nothing"


@pytest.mark.parametrize("target", ["bench", "bench-quick", "layout", "generate"])
def test_programs_take_the_options_that_recipes_give_them(target):
    found = re.findall(r"python3 ((?:benches|generate)/\S+)(.*)", recipe(target))
    assert found, f"make {target} runs no program of this repository"
    for program, given in found:
        done = subprocess.run([sys.executable, ROOT / program, "--help"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{program}: {done.stderr}"
        offered = set(re.findall(r"--[a-z][a-z0-9-]*", done.stdout))
        wanted = set(re.findall(r"(?<=\s)--[a-z][a-z0-9-]*", given))
        assert wanted <= offered, f"{program} does not know {sorted(wanted - offered)}"


def test_the_generator_reads_and_writes_files_that_are_there():
    text = (ROOT / "generate/generate.py").read_text()
    for path in ("crates/objects/schema/data/schema.txt", "crates/objects/schema/data/catalogue.txt"):
        assert path in text and (ROOT / path).is_file(), path
    for name in ("go-facts.txt", "supplement.txt"):
        assert name in text and (ROOT / "generate" / name).is_file(), name


# ---- deny.toml, as far as it can be held without cargo-deny ----

def dependencies():
    """Name and licence of every package of others that is built here, tests included."""
    command = [os.environ.get("CARGO", "cargo"), "tree", "--workspace", "--locked", "--offline",
               "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}\t{l}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = {line.removesuffix(" (*)") for line in done.stdout.splitlines() if line and str(ROOT) not in line}
    return {package.split()[0]: licence for package, licence in (line.split("\t") for line in lines)}


def is_allowed(expression, allowed):
    """Whether a licence expression of SPDX can be met. `A/B` is the old form of `A OR B`."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    words = re.sub(r" WITH ", "\0", " ".join(words)).split()
    operators = {"OR": "or", "AND": "and", "(": "(", ")": ")"}
    text = " ".join(operators.get(word) or str(word.replace("\0", " WITH ") in allowed) for word in words)
    return eval(text, {"__builtins__": {}}, {})  # only True, False, and, or, and parentheses are in it


@pytest.mark.parametrize("expression, fine", [
    ("MIT", True), ("GPL-3.0", False), ("GPL-3.0 OR MIT", True), ("GPL-3.0 AND MIT", False), ("MIT/GPL-3.0", True),
    ("(MIT OR GPL-3.0) AND ISC", True), ("Apache-2.0 WITH LLVM-exception", True), ("Apache-2.0 WITH other", False),
])
def test_licence_expressions_are_understood(expression, fine):
    assert is_allowed(expression, {"MIT", "ISC", "Apache-2.0 WITH LLVM-exception"}) is fine


def test_no_dependency_is_one_that_is_denied():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    allowed, denied = set(rules["licenses"]["allow"]), {each["crate"] for each in rules["bans"]["deny"]}
    found = dependencies()
    assert len(found) > 100
    bad = {name: licence for name, licence in found.items() if not licence or not is_allowed(licence, allowed)}
    assert not bad, bad
    assert not denied & found.keys()
