"""The README's tour and the examples do what they say."""
import re
import subprocess

import pytest
import yaml

from center import ROOT, Tools, running


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    with running() as center:
        yield Tools(center, tmp_path_factory.mktemp("home"))


def blocks():
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


def test_the_tour(tools):
    assert len(blocks()) >= 4
    # One shell for all, as a reader has; only where the kubeconfig lies differs.
    script = "\n".join(b for b in blocks()).replace("$PWD/.data/center/admin.kubeconfig", str(tools.center.kubeconfig))
    done = subprocess.run(["bash", "-exuo", "pipefail", "-c", script], cwd=ROOT, env=tools.env, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    for said in ("bob is told about alice", "threads come in pairs", "jacquard", "400"):
        assert said in done.stdout, said


def test_every_example_applies(tools):
    files = sorted((ROOT / "examples").glob("*.yaml"), key=lambda f: (f.name != "crd.yaml", f.name))
    assert files
    for file in files:
        tools.kubectl("apply", "-f", file)
        assert "unchanged" in tools.kubectl("apply", "-f", file), f"{file.name} applied twice changes nothing"
        if file.name == "crd.yaml":
            tools.kubectl("wait", "--for=condition=Established", "-f", file, "--timeout=20s")
    for file in reversed(files):
        tools.kubectl("delete", "--ignore-not-found", "-f", file, timeout=60)


def test_pages_link_to_what_exists():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_examples_are_explained():
    for file in (ROOT / "examples").glob("*.yaml"):
        assert file.read_text().startswith("# "), f"{file.name} should say what it shows"
        assert all(yaml.safe_load_all(file.read_text()))
