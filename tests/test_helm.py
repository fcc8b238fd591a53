"""helm's life of a release, with a chart that has a CRD, a hook and conditional parts."""
import json

import pytest

from center import HERE

CHART = HERE / "chart"


@pytest.fixture
def helm(tools, ns):
    return lambda *args, **kw: tools.helm(*args, "-n", ns, **kw)


def data(kubectl, name):
    return kubectl.json("get", "cm", name)["data"]


def test_install_upgrade_rollback_uninstall(helm, kubectl):
    helm("install", "loom", CHART)
    assert kubectl.json("get", "deployment", "loom")["spec"]["replicas"] == 1
    assert data(kubectl, "loom-hook") == {"revision": "1"}
    assert "spools.loom.example.com" in kubectl.all("get", "crd", "-o", "name")

    helm("upgrade", "loom", CHART, "--set", "replicas=3,greeting=bye,extra=true")
    assert kubectl.json("get", "deployment", "loom")["spec"]["replicas"] == 3
    assert data(kubectl, "loom") == {"greeting": "bye"} and data(kubectl, "loom-hook") == {"revision": "2"}
    kubectl("get", "cm", "loom-extra")

    helm("rollback", "loom", "1")
    assert data(kubectl, "loom") == {"greeting": "hello"}
    assert "NotFound" in kubectl("get", "cm", "loom-extra", code=1), "what the older revision lacks is removed"
    history = json.loads(helm("history", "loom", "-o", "json"))
    assert [(h["revision"], h["status"]) for h in history] == [(1, "superseded"), (2, "superseded"), (3, "deployed")]
    assert json.loads(helm("list", "-o", "json"))[0]["name"] == "loom"
    assert "loom" in helm("get", "manifest", "loom")

    helm("uninstall", "loom")
    assert kubectl("get", "deployment,svc,pdb", "-o", "name") == ""
    assert helm("list", "-q").strip() == ""


def test_upgrade_install_is_repeatable_and_respects_scaling_by_others(helm, kubectl):
    for _ in range(2):
        helm("upgrade", "--install", "loom", CHART)
    kubectl("annotate", "svc", "loom", "note=mine")
    helm("upgrade", "loom", CHART, "--set", "greeting=again")
    assert kubectl.json("get", "svc", "loom")["metadata"]["annotations"]["note"] == "mine"


def test_broken_upgrade_leaves_the_release_usable(helm, kubectl):
    helm("install", "loom", CHART)
    out = helm("upgrade", "loom", CHART, "--set", "replicas=-1", code=1)
    assert "must be greater than or equal to 0" in out
    helm("upgrade", "loom", CHART, "--set", "replicas=2")
    assert kubectl.json("get", "deployment", "loom")["spec"]["replicas"] == 2


def test_dry_run_and_template_with_the_server(helm, kubectl):
    assert "PodDisruptionBudget" in helm("install", "loom", CHART, "--dry-run=server")
    assert kubectl("get", "deployment", "-o", "name") == ""
