"""`selvedge up` as a person uses it: does what it says, literally."""
import contextlib
import json
import os
import pathlib
import re
import subprocess

import pytest
import yaml

from center import TOOLS, Center, Tools, binary, die_with_parent, wait_for
from edge import selvedge


class Up:
    def __init__(self, data, *args):
        self.data, self.said = data, ""
        self.process = subprocess.Popen([binary(), "up", "--data-dir", str(data), "--listen", "127.0.0.1:0", *args],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent)

    def ready(self):
        while "Ctrl-C" not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        return self

    def stop(self):
        self.process.terminate()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        assert self.process.wait(30) == 0, rest
        return rest

    def children(self):
        """The name of each, by its directory."""
        found = {}
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_text().split("\0")
                if f"\nPPid:\t{self.process.pid}\n" in (process / "status").read_text() and "--data-dir" in command:
                    found[pathlib.Path(command[command.index("--data-dir") + 1]).name] = int(process.name)
        return found


@contextlib.contextmanager
def up(data, *args):
    running = Up(data, *args)
    try:
        yield running.ready()
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait(30)
        # Containers outlive the agent of an edge, and so a test that was killed.
        for keeper in data.glob("*/keeper"):
            subprocess.run([binary(), "keeper", str(keeper), "--stop"], capture_output=True, timeout=60)


def shell(script, home):
    home.mkdir(exist_ok=True)
    env = {"PATH": f"{TOOLS}:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", "shopt -s expand_aliases\n" + script], env=env, capture_output=True, text=True,
                          timeout=110, cwd=home)
    assert done.returncode == 0, script + done.stdout + done.stderr
    return done.stdout


def commands(said):
    """What it tells to type, as it stands there."""
    return "\n".join(line for line in said.splitlines() if re.match(r"  (alias|export|kubectl|selvedge) ", line) and "--watch" not in line)


def test_only_a_center(tmp_path):
    with up(tmp_path / "data", "--no-edges") as running:
        assert "default" in shell(commands(running.said), tmp_path / "home")
        assert list(running.children()) == ["center"]
        running.stop()


def test_who_cannot_start_says_why(tmp_path):
    with up(tmp_path / "data", "--no-edges"):
        second = subprocess.run([binary(), "up", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--no-edges"],
                                capture_output=True, text=True, timeout=60)
        assert second.returncode == 1 and "center does not start: another selvedge" in second.stderr, second.stderr
        assert (tmp_path / "data/center/admin.kubeconfig").exists(), "what belongs to the first one stays"


def test_nothing_is_left_running_when_it_dies(tmp_path):
    with up(tmp_path / "data", "--no-edges") as running:
        children = running.children().values()
        running.process.kill()
        wait_for("its children to end", lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children), 20)


def test_who_dies_is_started_again_at_the_same_place(tmp_path):
    with up(tmp_path / "data", "--no-edges") as running:
        config = tmp_path / "data/center/admin.kubeconfig"
        before, first = config.read_text(), running.children()["center"]
        os.kill(first, 9)
        wait_for("another process", lambda: running.children().get("center", first) != first, 20)
        assert yaml.safe_load(config.read_text())["clusters"] == yaml.safe_load(before)["clusters"]
        assert "started again" in running.stop()


# ---- with edges ----

@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    base = tmp_path_factory.mktemp("up")
    with up(base / "data") as running:
        yield running
        said = running.stop()
        assert said.index("edges first") < said.rindex("center  |"), said
        assert not running.children()


def status(running, *args):
    return selvedge("status", "--kubeconfig", running.data / "center/admin.kubeconfig", *args)


def told(running, name="florin"):
    return json.loads(status(running, name, "-o", "json"))["edges"][0]


def test_does_what_it_says(fleet, tmp_path):
    out = shell(commands(fleet.said), tmp_path / "home")
    assert "offer" in out and "The link of florin is cut" in out and "florin is connected again" in out
    assert re.search(r"^florin +connected .* \d+ objects$", out, re.M), out
    assert set(fleet.children()) == {"center", "florin", "guilder", "cloud"}


def test_the_fleet_at_a_glance(fleet):
    wait_for("all in sync", lambda: status(fleet).count("in sync") == 3, 30, every=0.2)
    selvedge("link", "cut", "florin", "--kubeconfig", fleet.data / "center/admin.kubeconfig")
    assert told(fleet)["state"] == "cut" and told(fleet, "root:imw-1:guilder")["state"] == "connected"
    shop = Tools(Center(fleet.data / "center"), fleet.data / "home")
    shop.env["KUBECONFIG"] = str(fleet.data / "shop.kubeconfig")
    for i in range(3):
        shop.kubectl("create", "configmap", f"behind-{i}")
    wait_for("what it missed", lambda: "3 behind" in status(fleet, "florin"), 10, every=0.2)
    selvedge("link", "heal", "florin", "--kubeconfig", fleet.data / "shop.kubeconfig")
    wait_for("all of it", lambda: told(fleet)["inSync"], 30, every=0.2)
    for wrong in (("status", "nobody"), ("link", "cut", "nobody")):
        said = selvedge(*wrong, "--kubeconfig", fleet.data / "shop.kubeconfig", code=1)
        assert "no edge nobody" in said, said


def test_watching_the_fleet(fleet):
    watching = subprocess.Popen([binary(), "status", "--watch", "--kubeconfig", str(fleet.data / "shop.kubeconfig")],
                                stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
    try:
        assert "EDGE" in watching.stdout.readline()
        selvedge("link", "cut", "guilder", "--kubeconfig", fleet.data / "shop.kubeconfig")
        while not re.match(r"guilder +cut ", watching.stdout.readline()):
            pass
    finally:
        watching.kill()
        watching.wait(30)
        watching.stdout.close()
        selvedge("link", "heal", "guilder", "--kubeconfig", fleet.data / "shop.kubeconfig")


def test_an_edge_that_dies_comes_back_with_everything(fleet):
    before, config = fleet.children()["florin"], (fleet.data / "florin/admin.kubeconfig").read_text()
    os.kill(before, 9)
    wait_for("another florin", lambda: fleet.children().get("florin", before) != before, 20)
    wait_for("the link", lambda: told(fleet)["inSync"], 40, every=0.2)
    assert (fleet.data / "florin/admin.kubeconfig").read_text().split("server:")[1].split()[0] == config.split("server:")[1].split()[0]


def test_a_second_start_takes_up_what_is_there(tmp_path):
    home = tmp_path / "home"
    with up(tmp_path / "data", "--edge", "solo") as running:
        script = "\n".join(line for line in commands(running.said).splitlines() if "link" not in line and "--kubeconfig" not in line)
        shell(script, home)
        read = f"kubectl --kubeconfig {running.data}/solo/admin.kubeconfig"
        shell(f"{read} wait configmap/offer --for=create --timeout=20s; {read} create configmap mine", home)
        first = (running.data / "solo/admin.kubeconfig").read_text()
        running.stop()
    with up(tmp_path / "data", "--edge", "solo") as running:
        assert first.split("server:")[1].split()[0] in (running.data / "solo/admin.kubeconfig").read_text(), "edges keep their ports"
        shell(f"{read} get configmap offer mine welcome", home)
        wait_for("the link", lambda: told(running, "solo")["inSync"], 30, every=0.2)
        running.stop()
