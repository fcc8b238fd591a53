"""The README's tour and the examples do what they say."""
import re
import subprocess

import pytest
import yaml

from center import ROOT, TOOLS, Center, Tools, binary
from test_up import up


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """As `make up` leaves it running, with the data elsewhere."""
    base = tmp_path_factory.mktemp("up")
    with up(base / "data"):
        yield base / "data"


@pytest.fixture(scope="module")
def tools(data, tmp_path_factory):
    return Tools(Center(data / "center"), tmp_path_factory.mktemp("home"))


def run(page, data, home, at_least):
    """All blocks of a page in one shell, as a reader has; only where the data and the program lie differs."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    assert len(blocks) >= at_least
    script = "shopt -s expand_aliases\n" + "\n".join(blocks)
    script = re.sub(r"(\$PWD/)?\.data/", f"{data}/", script).replace("$PWD/target/local/selvedge", binary())
    env = {"PATH": f"{TOOLS}:/usr/bin:/bin", "HOME": str(home), "TERM": "dumb"}
    done = subprocess.run(["bash", "-exuo", "pipefail", "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(300)
def test_the_tour(data, tmp_path):
    out = run("README.md", data, tmp_path, 7)
    for said in ("bob is told about alice", "threads come in pairs", "jacquard", "400", "that is the center's to change", "in sync",
                 "florin is connected again", "This is a common web site.", "This is a special web site.", "Edited at the center.", "cloud"):
        assert said in out, said


@pytest.mark.timeout(300)
def test_trying_offline(data, tmp_path):
    out = run("docs/tutorials/trying-offline.md", data, tmp_path, 4)
    for said in ("in sync", "The link of florin is cut", "refused: the center is away", "2 behind", "florin is connected again"):
        assert said in out, said


@pytest.mark.timeout(300)
def test_the_first_example(data, tmp_path):
    out = run("docs/tutorials/first-example.md", data, tmp_path, 9)
    for said in ("This is a common web site.", "This is a special web site.", "Edited while", "edge-placement-c", "specialstuff", "running in florin", "running in guilder", "env is prod", "florin has no need of it",
                 "guilder is connected again"):
        assert said in out, said


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
