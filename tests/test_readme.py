"""The README, the tutorials and the examples do what they say."""
import pytest
import yaml
from center import ROOT, Center, Tools, wait_for
from edge import selvedge
from pages import agrees, run
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


def settled(data, home):
    """The state that a reader meets some seconds after `make up` said that it is ready."""
    tools = Tools(Center(data / "center"), home)
    florin = ("--kubeconfig", data / "florin/admin.kubeconfig")
    there = ("-n", "commonstuff", "deployment/commond", "--timeout=60s")
    tools.kubectl(*florin, "wait", *there, "--for=create", timeout=70)
    tools.kubectl(*florin, "rollout", "status", *there, timeout=70)
    status = ("status", "--kubeconfig", data / "center/admin.kubeconfig")
    wait_for("all edges in sync", lambda: selvedge(*status).count("in sync") == 3, 60)


@pytest.mark.timeout(300)
def test_the_readme(data, tmp_path):
    settled(data, tmp_path)
    out = run("README.md", data, tmp_path, 4)
    for said in ("in sync", "commond", "The link of florin is cut", "behind", "florin is connected again"):
        assert said in out, said


@pytest.mark.timeout(300)
def test_getting_started(data, tmp_path):
    out = run("docs/tutorials/getting-started.md", data, tmp_path, 6)
    for said in ("deployment.apps/web scaled", "condition met", "RollingUpdate", "yes"):
        assert said in out, said


@pytest.mark.timeout(300)
def test_a_kind_of_your_own(data, tmp_path):
    out = run("docs/tutorials/own-kinds.md", data, tmp_path, 6)
    for said in ("bob is told about alice", "threads come in pairs", "jacquard", "400"):
        assert said in out, said


@pytest.mark.timeout(300)
def test_two_edges(data, tmp_path):
    out = run("docs/tutorials/two-edges.md", data, tmp_path, 5)
    for said in ("This is a common web site.", "This is a special web site.", "Edited at the center.", "cloud"):
        assert said in out, said


@pytest.mark.timeout(300)
def test_a_cut_link(data, tmp_path):
    out = run("docs/tutorials/cut-link.md", data, tmp_path, 5)
    for said in ("that is the center's to change", "behind", "florin is connected again"):
        assert said in out, said


@pytest.mark.timeout(300)
def test_trying_offline(data, tmp_path):
    out = run("docs/tutorials/trying-offline.md", data, tmp_path, 4)
    for said in ("in sync", "The link of florin is cut", "refused: the center is away", "2 behind",
                 "florin is connected again"):
        assert said in out, said


@pytest.mark.timeout(300)
def test_the_first_example(data, tmp_path):
    out = run("docs/tutorials/first-example.md", data, tmp_path, 9)
    for said in ("This is a common web site.", "This is a special web site.", "Edited while", "edge-placement-c",
                 "specialstuff", "running in florin", "running in guilder", "env is prod", "florin has no need of it",
                 "guilder is connected again"):
        assert said in out, said


def test_shown_output_is_compared():
    real = "NAME   READY   AGE\nweb-5f6c7d8e9f-abcde   1/1   13s\nurl https://127.0.0.1:41241\n"
    assert agrees("NAME READY AGE\nweb-0123456789-vwxyz 1/1 2m3s\nurl https://127.0.0.1:6443\n", real)
    assert agrees("connected (took 0.4 s), 6 objects\n", "connected (took 12.1 s), 13 objects\n")
    assert agrees("NAME   READY   AGE\n…\n", real) and agrees("…\nurl https://127.0.0.1:1\n", real)
    assert not agrees("NAME   READY   AGE\nweb-0123456789-vwxyz 0/1 2m3s\n…\n", real)
    assert not agrees("NAME   READY   AGE\n", real)
    assert not agrees("…\nNAME   READY   AGE\n…\nNAME   READY   AGE\n", real)


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


def test_examples_are_explained():
    for file in (ROOT / "examples").glob("*.yaml"):
        assert file.read_text().startswith("# "), f"{file.name} should say what it shows"
        assert all(yaml.safe_load_all(file.read_text()))
