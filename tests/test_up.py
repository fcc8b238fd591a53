"""`selvedge up` as a person uses it: does what it says, literally."""
import contextlib
import os
import pathlib
import re
import subprocess

import yaml

from center import TOOLS, binary, die_with_parent, wait_for


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
            running.process.wait()


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
