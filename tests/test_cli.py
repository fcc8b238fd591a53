"""The command line: `up` as a person uses it, and the small commands."""
import re
import subprocess

import pytest
import yaml

from center import Center, Tools, binary, die_with_parent, wait_for


def selvedge(*args):
    return subprocess.run([binary(), *map(str, args)], capture_output=True, text=True, timeout=20)


@pytest.fixture
def center(tmp_path):
    center = Center(tmp_path / "data")
    yield center
    center.kill()


def test_help_and_version():
    said = selvedge("--help").stdout
    for command in ("center", "up", "kubeconfig", "ws", "config", "completions"):
        assert re.search(rf"^  {command} ", said, re.M), command
        assert selvedge(command, "--help").returncode == 0
    assert selvedge("--version").stdout.startswith("selvedge ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(shell):
    assert "kubeconfig" in selvedge("completions", shell).stdout


def test_config_is_printed_and_can_be_read_back(tmp_path):
    printed = selvedge("config", "--listen", "127.0.0.1:7777")
    assert printed.returncode == 0 and "127.0.0.1:7777" in printed.stdout
    assert yaml.safe_load(printed.stdout)
    file = tmp_path / "config.yaml"
    file.write_text(printed.stdout)
    assert selvedge("config", "--config", file).stdout == printed.stdout
    file.write_text("lissten: 127.0.0.1:1\n")
    wrong = selvedge("config", "--config", file)
    assert wrong.returncode > 0 and "lissten" in wrong.stderr


def test_kubeconfig(center, tmp_path):
    center.start()
    printed = selvedge("kubeconfig", "--data-dir", center.data_dir)
    assert printed.returncode == 0 and center.url in printed.stdout
    missing = selvedge("kubeconfig", "--data-dir", tmp_path / "nowhere")
    assert missing.returncode > 0 and "nowhere" in missing.stderr
    assert "default" in Tools(center, tmp_path / "home").kubectl("get", "ns")


def test_up_says_what_to_do_next(tmp_path):
    """Does what it says, literally."""
    data = tmp_path / "data"
    up = subprocess.Popen([binary(), "up", "--data-dir", str(data), "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent)
    try:
        wait_for("admin.kubeconfig", (data / "admin.kubeconfig").exists, 30)
        said = ""
        while "Ctrl-C" not in said:
            line = up.stdout.readline()
            assert line, said
            said += line
        address = re.search(r"https://\S+", said).group()
        kubeconfig = re.search(r"export KUBECONFIG=(\S+)", said).group(1)
        assert address in open(kubeconfig).read()
        center = Center(data)
        for command in re.findall(r"^ +kubectl (.*)$", said, re.M):
            if "--watch" not in command:
                Tools(center, tmp_path / "home").kubectl(*command.split())
    finally:
        up.terminate()
        assert up.wait(20) == 0
        up.stdout.close()
