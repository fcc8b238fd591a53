"""The command line: the small commands."""
import re
import subprocess

import pytest
import yaml

from center import Center, Tools, binary


def selvedge(*args):
    return subprocess.run([binary(), *map(str, args)], capture_output=True, text=True, timeout=20)


@pytest.fixture
def center(tmp_path):
    center = Center(tmp_path / "data")
    yield center
    center.kill()


def test_help_and_version():
    said = selvedge("--help").stdout
    for command in ("center", "up", "status", "link", "kubeconfig", "ws", "config", "completions"):
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
    server = lambda *more: yaml.safe_load(selvedge("kubeconfig", "--data-dir", center.data_dir, *more).stdout)["clusters"][0]["cluster"]["server"]
    assert printed.returncode == 0 and server() == f"{center.url}/clusters/root"
    assert server("--server", "https://elsewhere:1/") == "https://elsewhere:1/clusters/root"
    assert server("--server", "https://elsewhere:1/clusters/root:b") == "https://elsewhere:1/clusters/root:b"
    elsewhere = yaml.safe_load(selvedge("kubeconfig", "--data-dir", center.data_dir, "--workspace", "root:a").stdout)
    assert elsewhere["clusters"][0]["cluster"]["server"] == f"{center.url}/clusters/root:a"
    missing = selvedge("kubeconfig", "--data-dir", tmp_path / "nowhere")
    assert missing.returncode > 0 and "nowhere" in missing.stderr
    assert "default" in Tools(center, tmp_path / "home").kubectl("get", "ns")
