"""Clocks that jump: the time of day of an edge or of the center (a small library before libc), and the clock that only counts
(`unshare --time`, where that is allowed)."""
import os
import pathlib
import shutil
import struct
import subprocess

import pytest

from center import Center, wait_for
from edge import Edge, in_sync, make_workspace
from manifests import configmap

SHOP = "root:shop"
MAPS = "/api/v1/namespaces/default/configmaps"
HOUR = 3600


class Clock:
    """The time of day of one process, to be set while it runs."""

    def __init__(self, home, name):
        library = home / "clock.so"
        if not library.exists():
            compiler = shutil.which("cc") or shutil.which("gcc")
            source = pathlib.Path(__file__).with_name("clock") / "clock.c"
            subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True, timeout=60)
        self.file = home / f"{name}.clock"
        self.jump(0)
        self.env = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(self.file)}

    def jump(self, seconds):
        # In place: the process has the file mapped.
        with open(os.open(self.file, os.O_WRONLY | os.O_CREAT), "wb") as file:
            file.write(struct.pack("q", seconds))


@pytest.fixture
def world(tmp_path):
    clocks = Clock(tmp_path, "center"), Clock(tmp_path, "florin")
    center = Center(tmp_path / "center", env=clocks[0].env)
    florin = Edge(center, tmp_path / "florin", "florin", SHOP, env=clocks[1].env)
    try:
        center.start()
        make_workspace(center, SHOP)
        florin.start().wait_connected()
        yield center, florin, *clocks
    finally:
        florin.kill()
        center.kill()


def write(center, name, value):
    body = configmap(name, v=value)
    if center.request("PUT", f"/clusters/{SHOP}{MAPS}/{name}", body)[0] == 404:
        center.api("POST", f"/clusters/{SHOP}{MAPS}", body)


def test_the_library_shifts_time(world):
    center, florin, _, clock = world
    clock.jump(5 * HOUR)
    made = florin.api("POST", MAPS, configmap("then"))["metadata"]["creationTimestamp"]
    now = center.api("POST", MAPS, configmap("now"))["metadata"]["creationTimestamp"]
    assert made[:13] != now[:13], (made, now)


@pytest.mark.parametrize("which", ["center", "florin"])
def test_jumps_of_the_time_of_day(world, which):
    """Replication, heartbeats and versions do not depend on what time somebody thinks it is."""
    center, florin, *clocks = world
    clock = clocks[0] if which == "center" else clocks[1]
    newest = 0
    for turn, jump in enumerate([0, HOUR, -HOUR, 24 * HOUR, -2 * HOUR, 0]):
        clock.jump(jump)
        for i in range(5):
            write(center, f"turn-{i}", str(turn))
        in_sync(center, SHOP, florin, 30)
        listed = int(florin.api("GET", MAPS)["metadata"]["resourceVersion"])
        assert listed > newest, "versions come from no clock"
        newest = listed
        assert florin.connected(), f"a jump by {jump} s ends no link"


def test_restart_with_another_time_of_day(world):
    """An edge without a battery behind its clock wakes up in the past: it serves, and its certificate is not yet valid to itself only."""
    center, florin, _, clock = world
    write(center, "before", "1")
    in_sync(center, SHOP, florin)
    florin.kill()
    clock.jump(-2 * HOUR)
    florin.start()
    assert florin.api("GET", f"{MAPS}/before")["data"] == {"v": "1"}
    write(center, "after", "1")
    clock.jump(0)
    in_sync(center, SHOP, florin, 90)


def test_restart_with_another_clock_that_counts(tmp_path):
    """After a reboot the counting clock begins again, lower or higher than whatever was remembered."""
    if subprocess.run(["unshare", "--time", "--monotonic", "1000", "true"], capture_output=True, timeout=60).returncode:
        pytest.skip("time namespaces are not allowed here (unshare --time)")
    center = Center(tmp_path / "center")
    florin = Edge(center, tmp_path / "florin", "florin", SHOP)
    try:
        center.start()
        make_workspace(center, SHOP)
        plain, newest = list(florin.base), 0
        for turn, offset in enumerate([1_000_000, 0, 50_000_000]):
            florin.base = ["unshare", "--time", "--monotonic", str(offset), "--boottime", str(offset), "--fork", "--kill-child", *plain]
            florin.start().wait_connected(60)
            write(center, "counted", str(turn))
            wait_for("the change", lambda: florin.api("GET", f"{MAPS}/counted")["data"] == {"v": str(turn)}, 30)
            listed = int(florin.api("GET", MAPS)["metadata"]["resourceVersion"])
            assert listed > newest
            newest = listed
            florin.kill()
            center.still_answers()
    finally:
        florin.kill()
        center.kill()
