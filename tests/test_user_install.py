"""Installing as a user does: the page's commands, version, manual pages, help in groups, logs without colours, units, and the container image."""
import hashlib
import json
import os
import pty
import re
import shutil
import subprocess
import tarfile

import pytest

from center import ROOT, Center, binary, wait_for
from edge import selvedge
from test_pages import backup_with

COLOUR = "\x1b["


def test_version_says_what_it_serves():
    said = selvedge("version")
    assert re.match(r"selvedge \d+\.\d+\.\d+", said) and re.search(r"^Kubernetes API v1\.36", said, re.M)
    described = json.loads(selvedge("version", "--output", "json"))
    assert f"selvedge {described['version']}" in said and described["kubernetesVersion"] in said


def test_help_has_groups_and_examples():
    for command, groups in (("center", {"Options", "Store", "Identity", "Admission", "Limits", "Audit log", "Examples"}),
                            ("edge", {"Joining", "Workloads", "Store", "Identity", "Examples"})):
        said = selvedge(command, "--help")
        assert groups <= set(re.findall(r"^([A-Z][a-z ]+):$", said, re.M)), said
    # An edge has no etcd, and says so when asked for it.
    assert "--etcd-endpoints" in selvedge("center", "--help") and "etcd-" not in selvedge("edge", "--help")
    assert "etcd-" not in selvedge("edge", "config", "--help")
    assert "is for centers" in selvedge("edge", "config", "--store", "etcd", code=1)


def test_a_reader_that_stops_reading_is_no_error():
    done = subprocess.run(["bash", "-c", f"{binary()} completions bash | head -1"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and not done.stderr


def test_manual_pages_cover_every_command(tmp_path):
    selvedge("man", "--dir", tmp_path / "man1")
    pages = {page.stem: page.read_text() for page in (tmp_path / "man1").glob("*.1")}
    assert {"selvedge", "selvedge-center", "selvedge-edge-manifest", "selvedge-join-token-create"} <= pages.keys()
    assert "SELVEDGE_LISTEN" in pages["selvedge-center"] and "etcd" not in pages["selvedge-edge"].split("SYNOPSIS")[1].split("DESCRIPTION")[0]
    assert selvedge("man").splitlines()[:40] == pages["selvedge"].splitlines()[:40]
    if shutil.which("man"):
        shown = subprocess.run(["man", "--warnings", "-l", tmp_path / "man1/selvedge-center.1"], capture_output=True, text=True, timeout=30)
        assert shown.returncode == 0 and not shown.stderr and "AUDIT LOG" in shown.stdout


def test_colours_are_for_terminals(tmp_path):
    def logged(env, stderr):
        return subprocess.Popen([binary(), "center", "--data-dir", tmp_path / "d", "--listen", "127.0.0.1:0"], stderr=stderr, env=env)

    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    log = tmp_path / "log"
    with log.open("w") as out:
        process = logged(env, out)
    try:
        wait_for("a line of the log", lambda: "the API is ready" in log.read_text(), 20)
    finally:
        process.terminate()
        process.wait(20)
    assert COLOUR not in log.read_text()

    def on_terminal(env):
        ours, theirs = pty.openpty()
        process = logged(env, theirs)
        os.close(theirs)
        text = b""
        try:
            while b"ready" not in text:
                text += os.read(ours, 4096)
        finally:
            process.terminate()
            process.wait(20)
            os.close(ours)
        return text.decode()

    assert COLOUR in on_terminal(env)
    assert COLOUR not in on_terminal({**env, "NO_COLOR": "1"})


@pytest.mark.parametrize("role", ["center", "edge"])
def test_units_are_what_systemd_takes(role, tmp_path):
    text = selvedge(role, "systemd-unit")
    assert text == (ROOT / f"deploy/systemd/selvedge-{role}.service").read_text()
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not here")
    # The program lies elsewhere on this machine.
    unit = tmp_path / f"selvedge-{role}.service"
    unit.write_text(text.replace("/usr/local/bin/selvedge", binary()))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and unit.name not in done.stderr, done.stderr


def test_an_image_of_itself_runs(tmp_path):
    archive = tmp_path / "image.tar"
    assert "docker load" in selvedge("image", "--output", archive)
    with tarfile.open(archive) as image:
        (manifest,) = json.load(image.extractfile("manifest.json"))
        config = image.extractfile(manifest["Config"]).read()
        layer = image.extractfile("layer.tar").read()
    version = json.loads(selvedge("version", "--output", "json"))["version"]
    assert manifest["RepoTags"] == [f"selvedge:{version}"] and manifest["Config"] == hashlib.sha256(config).hexdigest() + ".json"
    config = json.loads(config)
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    # The manifest of an edge names it and says how to make it.
    token = f"a.b.{'0' * 64}.root"
    printed = selvedge("edge", "manifest", "--center", "https://c", "--token", token, "--name", "florin")
    assert f"image: {manifest['RepoTags'][0]}" in printed and "`selvedge image` makes this image" in printed
    root = tmp_path / "root"
    (tmp_path / "layer.tar").write_bytes(layer)
    del layer
    with tarfile.open(tmp_path / "layer.tar") as files:
        files.extractall(root, filter="tar")
    if os.getuid():
        pytest.skip("only root may change the root directory")
    inside = {"cwd": "/", "capture_output": True, "text": True, "timeout": 30, "env": {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}}
    done = subprocess.run(["chroot", root, *config["config"]["Entrypoint"], "version"], **inside)
    assert done.returncode == 0 and done.stdout.startswith(f"selvedge {version}"), done.stderr


def test_the_page_says_what_works(tmp_path):
    """Every command of docs/how-to/installing.md, with other directories."""
    page = (ROOT / "docs/how-to/installing.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    install, *more, remove = blocks
    usr, units = tmp_path / "usr/local", tmp_path / "units"
    units.mkdir()

    def run(block):
        for old, new in (("/usr/local", str(usr)), ("/etc/systemd/system", str(units)), ("target/release/selvedge", binary()),
                         ("selvedge-image.tar", str(tmp_path / "image.tar"))):
            block = block.replace(old, new)
        env = {"PATH": f"{usr}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, block + done.stderr
        return done.stdout

    assert "Kubernetes API" in run(install)
    for block in more:
        run(block)
    assert {unit.name for unit in units.iterdir()} == {"selvedge-center.service", "selvedge-edge.service"} and (tmp_path / "image.tar").exists()
    run(remove)
    assert not [path for path in usr.rglob("*") if path.is_file() or path.is_symlink()], "the page removes all that it put there"


# ---- docs/how-to/operations.md ----

@pytest.mark.parametrize("how", ["running", "killed"])
def test_a_backup_is_a_center(tmp_path, how):
    """The page's command; a center on the copy has what was there, with the same keys."""
    page = (ROOT / "docs/how-to/operations.md").read_text()
    (command,) = re.findall(r"^```sh\n(selvedge backup .*)\n```", page, re.M)
    words = command.replace(".data/center", str(tmp_path / "center")).replace("--to backup", f"--to {tmp_path}/backup").split()
    maps = "/api/v1/namespaces/default/configmaps"
    center = Center(tmp_path / "center").start()
    restored = None
    try:
        for n in range(20):
            center.api("POST", maps, {"metadata": {"name": f"kept-{n}"}}, expect=(201,))
        center.api("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "sealed"}, "stringData": {"pin": "4711"}}, expect=(201,))
        backup, said = tmp_path / "backup", []

        def copy():
            shutil.rmtree(backup, ignore_errors=True)
            said.append(selvedge(*words[1:]))

        if how == "killed":
            center.kill()
            copy()
        else:
            backup_with("sealed", backup / "store/store.db", copy)
        assert "To restore" in said[-1]
        assert "is there already" in selvedge(*words[1:], code=1)
        center.kill()
        assert backup.stat().st_mode & 0o777 == 0o700 and not [path for path in backup.rglob("*") if path.stat().st_mode & 0o077]
        restored = Center(backup).start()
        assert {f"kept-{n}" for n in range(20)} <= {o["metadata"]["name"] for o in restored.api("GET", maps)["items"]}
        assert restored.api("GET", "/api/v1/namespaces/default/secrets/sealed")["data"]["pin"] == "NDcxMQ=="
    finally:
        center.kill()
        if restored:
            restored.kill()
    assert "there is no store" in selvedge("backup", "--data-dir", tmp_path / "nowhere", "--to", tmp_path / "b", code=1)
