"""`selvedge ws` and `kubectl ws`, as a person uses them."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from center import ROOT, TOOLS, binary, running


@pytest.fixture(scope="module")
def center():
    with running() as center:
        yield center


class Person:
    """Somebody with a kubeconfig and a home of their own."""

    def __init__(self, center, home):
        self.home = home
        self.kubeconfig = home / "kubeconfig"
        shutil.copy(center.kubeconfig, self.kubeconfig)
        programs = home / "bin"
        programs.mkdir()
        for name in ("kubectl-ws", "kubectl_complete-ws"):
            (programs / name).symlink_to(pathlib.Path(binary()).resolve())
        self.env = {"PATH": f"{programs}:{TOOLS}:{os.environ['PATH']}", "HOME": str(home), "KUBECONFIG": str(self.kubeconfig)}

    def run(self, *command, code=0, **env):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, cwd=self.home, env={**self.env, **env})
        assert done.returncode == code, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def ws(self, *args, **kw):
        return self.run(binary(), "ws", *args, **kw)

    def kubectl(self, *args, **kw):
        return self.run("kubectl", *args, **kw)

    @property
    def server(self):
        return yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]


@pytest.fixture
def person(center, tmp_path):
    return Person(center, tmp_path)


def test_a_day_in_workspaces(person, center):
    assert person.ws("current", "--short") == "root\n" and "current workspace is root" in person.ws()
    assert "`ws create" in person.ws("list") or "NAME" in person.ws("list")
    assert "org is ready" in person.ws("create", "org")
    assert "there already" in person.ws("create", "org", code=1)
    assert "there already" in person.ws("create", "org", "--ignore-existing")
    assert "root:org:team is ready" in person.ws("create", "root:org:team")
    person.ws("create", "root:org:shop")

    assert person.ws("use", "org") == "The current workspace is root:org.\n"
    assert person.server == f"{center.url}/clusters/root:org"
    assert re.search(r"^team +\S+ +Ready +root:org:team$", person.ws("ls"), re.M)
    assert person.ws("use", "team") == "The current workspace is root:org:team.\n"
    person.kubectl("create", "configmap", "here")
    assert "here" in person.kubectl("get", "configmaps")
    person.ws("..")
    assert "here" not in person.kubectl("get", "configmaps"), "another workspace, other objects"
    assert person.ws("use", "-") == "The current workspace is root:org:team.\n"
    assert person.ws("use", "-") == "The current workspace is root:org.\n"
    person.ws("use", "..:org:shop")
    assert person.ws("current", "--short").strip() == "root:org:shop"
    person.ws("create", "deep", "--enter")
    assert person.server.endswith("/clusters/root:org:shop:deep")

    tree = person.ws("tree", "root:org")
    assert tree == "root:org\n├── shop\n│   └── deep\n└── team\n"
    assert "leave it first" in person.ws("delete", "root:org:shop", code=1)
    person.ws("use", "root")
    assert "is gone" in person.ws("delete", "org:shop")
    assert person.ws("tree", "root:org") == "root:org\n└── team\n"
    person.ws("delete", "org")
    assert "not found" in person.ws("use", "org", code=1)
    assert person.ws("current", "--short") == "root\n", "what went wrong changes nothing"


def test_as_a_plugin_of_kubectl(person):
    assert "current workspace is root" in person.kubectl("ws")
    person.kubectl("ws", "create", "plugged", "--enter")
    assert person.kubectl("ws", "current", "--short") == "root:plugged\n"
    assert "kubectl ws" in person.kubectl("ws", "--help")
    person.kubectl("ws", "..")
    offered = person.kubectl("__complete", "ws", "use", "plu")
    assert "plugged" in offered.split("\n")[0], offered
    assert "create" in person.kubectl("__complete", "ws", "cr")
    person.kubectl("ws", "delete", "plugged", "--wait=false")


def test_the_kubeconfig_is_left_alone_but_for_the_server(person, center):
    before = yaml.safe_load(person.kubeconfig.read_text())
    before["preferences"] = {"colors": True}
    before["contexts"].append({"name": "other", "context": {**before["contexts"][0]["context"], "namespace": "elsewhere"}})
    before["x-mine"] = ["kept"]
    person.kubeconfig.write_text(yaml.safe_dump(before))
    person.kubeconfig.chmod(0o600)
    person.ws("create", "one", "--enter")
    after = yaml.safe_load(person.kubeconfig.read_text())
    assert person.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert after["x-mine"] == ["kept"] and after["preferences"] == {"colors": True} and after["users"] == before["users"]
    # The other context used the same cluster, and still does.
    assert after["clusters"][0] == before["clusters"][0] and after["contexts"][1] == before["contexts"][1]
    assert person.ws("current", "--short") == "root:one\n"
    assert person.kubectl("--context", "other", "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}") == f"{center.url}/clusters/root"
    assert "default" in person.kubectl("get", "namespaces")
    person.ws("-")
    assert person.kubectl("config", "current-context").strip() == before["current-context"]
    assert sorted(p.name for p in person.home.iterdir() if "kubeconfig" in p.name) == ["kubeconfig"], "no locks or halves are left"

    elsewhere = person.home / "named"
    shutil.copy(center.kubeconfig, elsewhere)
    person.ws("use", "root:one", "--kubeconfig", elsewhere)
    assert "/clusters/root:one" in elsewhere.read_text() and "root:one" not in person.ws("current")


def test_errors_say_what_to_do(person):
    said = person.ws("use", "nowhere", code=1)
    assert "root:nowhere" in said and "not found" in said and "ws tree" in said
    assert "topmost" in person.ws("use", "..", code=1)
    assert "no previous" in person.ws("use", "-", code=1)
    assert "lower-case" in person.ws("use", "Big", code=1)
    assert "neither be created nor deleted" in person.ws("delete", "root", code=1)
    assert "KUBECONFIG" in person.ws("list", code=1, KUBECONFIG=str(person.home / "none"))
    server = person.server
    person.kubeconfig.write_text(person.kubeconfig.read_text().replace(server, "https://127.0.0.1:1"))
    assert "is the center running" in person.ws("list", code=1)


def test_who_may_not_enter_is_told(person, center):
    person.ws("create", "closed")
    config = yaml.safe_load(person.kubeconfig.read_text())
    made = center.api("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})
    config["users"][0]["user"] = {"token": made["status"]["token"]}
    person.kubeconfig.write_text(yaml.safe_dump(config))
    said = person.ws("use", "closed", code=1)
    assert "may not enter" in said, said
    assert person.ws("current", "--short") == "root\n"


@pytest.mark.parametrize("page", ["reference/ws.md", "reference/authorization.md"])
def test_what_the_pages_show(person, page):
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.M | re.S)
    assert blocks
    (person.home / "bin" / "selvedge").symlink_to(pathlib.Path(binary()).resolve())
    script = "\n".join(blocks).replace("$PWD/.data/center/admin.kubeconfig", str(person.kubeconfig))
    said = person.run("bash", "-exuo", "pipefail", "-c", script)
    assert ("└── team" if page == "reference/ws.md" else "configmaps") in said
