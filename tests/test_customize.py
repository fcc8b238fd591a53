"""One object at the center, another one on each edge."""
import json
import pathlib
import re

import pytest
import yaml

from center import ROOT, Tools, binary, wait_for
from edge import fleet

CUSTOMIZERS = "/clusters/root/apis/edge.kcp.io/v1alpha1/namespaces/web/customizers"
WEB = "/apis/apps/v1/namespaces/web/deployments/web"
PAGE = "/api/v1/namespaces/web/configmaps/htdocs"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with fleet("florin", "guilder", workspace=None, directory=tmp_path_factory.mktemp("customize")) as (center, florin, guilder):
        yield center, florin, guilder
        assert "panicked" not in center.log_path.read_text(errors="replace")


@pytest.fixture(scope="module")
def tools(shop, tmp_path_factory):
    return Tools(shop[0], tmp_path_factory.mktemp("home"))


def patch(center, path, change):
    return center.api("PATCH", path, change, content_type="application/merge-patch+json")


def replacements(center, *pairs):
    return patch(center, f"{CUSTOMIZERS}/by-place", {"replacements": [{"path": path, "value": value} for path, value in pairs]})


def env(edge):
    return edge.api("GET", WEB)["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]


def test_the_page(shop, tools):
    center, florin, guilder = shop
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/how-to/customization.md").read_text(), re.M | re.S)
    assert len(blocks) == 2
    path = f"{pathlib.Path(binary()).parent}:{tools.env['PATH']}"
    out = tools.run(["bash", "-euo", "pipefail", "-c", "\n".join(blocks)],
                    env={"PATH": path, "FLORIN": str(florin.kubeconfig), "GUILDER": str(guilder.kubeconfig)}).stdout
    for said in ("This is florin, 100% cotton.", "env is prod", "replicas: 3", "example.com/place: guilder"):
        assert said in out, said
    wait_for("both", lambda: guilder.api("GET", PAGE) and florin.api("GET", WEB))
    assert guilder.api("GET", PAGE)["data"]["index.html"] == "This is guilder, 100% cotton."
    assert florin.api("GET", WEB)["spec"]["replicas"] == 1 and env(florin) == "env is prod"
    # At the center everything is as it was written.
    assert center.api("GET", f"/clusters/root{PAGE}")["data"]["index.html"] == "This is %(loc-name), 100%% cotton."


def test_a_change_of_either_side_arrives(shop):
    center, florin, guilder = shop
    replacements(center, ("$.spec.template.spec.containers[*].env[0].value", '"in %(loc-name)"'))
    wait_for("the other text", lambda: (env(florin), env(guilder)) == ("in florin", "in guilder"))
    wait_for("what is not replaced any more", lambda: guilder.api("GET", WEB)["spec"]["replicas"] == 1)
    location = "/clusters/root/apis/scheduling.kcp.io/v1alpha1/locations/florin"
    patch(center, location, {"metadata": {"labels": {"loc-name": "fiorino"}}})
    wait_for("the other label", lambda: env(florin) == "in fiorino")
    assert env(guilder) == "in guilder"
    patch(center, location, {"metadata": {"labels": {"loc-name": "florin"}}})
    wait_for("the label as it was", lambda: env(florin) == "in florin")


@pytest.mark.parametrize("path, value, said", [
    ("$.spec.replicas", "three", "not JSON"),
    ("$.spec.replicas.x", "1", "is a number, and has no member"),
    ("$.spec.template.spec.containers[?(@.name=='web')].image", '"x"', "filters"),
    ("$..name", '"x"', "says which object this is"),
])
def test_what_cannot_be_done_holds_that_object_only(shop, path, value, said):
    center, florin, guilder = shop
    replacements(center, ("$.spec.replicas", "2"), ("$.spec.template.spec.containers.0.env.0.value", '"good"'))
    wait_for("what is good", lambda: env(florin) == env(guilder) == "good")
    replacements(center, ("$.spec.template.spec.containers.0.env.0.value", '"bad"'), (path, value))
    placement = lambda: json.dumps(center.api("GET", "/clusters/root/apis/edge.kcp.io/v1alpha1/edgeplacements/web").get("status", {}))
    wait_for("the placement to say so", lambda: said in placement() and "apps/deployments/web/web" in placement(), 10)
    # Everything else goes on, and the edges keep what they had.
    page = f"{path} {value}"
    patch(center, f"/clusters/root{PAGE}", {"data": {"index.html": page.replace("%", "%%")}})
    wait_for("the other object", lambda: guilder.api("GET", PAGE)["data"]["index.html"] == page)
    assert (env(florin), env(guilder)) == ("good", "good")
    replacements(center, ("$.spec.template.spec.containers.0.env.0.value", '"good again"'))
    wait_for("what is good again", lambda: env(florin) == env(guilder) == "good again")
    wait_for("the placement to say nothing any more", lambda: said not in placement(), 10)


def test_one_location_can_be_held_alone(shop):
    """A value that is a number on one Location, and none on the other."""
    center, florin, guilder = shop
    patch(center, "/clusters/root/apis/scheduling.kcp.io/v1alpha1/locations/florin", {"metadata": {"labels": {"replicas": "one"}}})
    replacements(center, ("$.spec.replicas", "%(replicas)"), ("$.spec.template.spec.containers.0.env.0.value", '"numbers"'))
    wait_for("the Location that has a number", lambda: guilder.api("GET", WEB)["spec"]["replicas"] == 3 and env(guilder) == "numbers")
    assert env(florin) != "numbers" and florin.api("GET", WEB)["spec"]["replicas"] == 1
    patch(center, "/clusters/root/apis/scheduling.kcp.io/v1alpha1/locations/florin", {"metadata": {"labels": {"replicas": "5"}}})
    wait_for("the other too", lambda: florin.api("GET", WEB)["spec"]["replicas"] == 5 and env(florin) == "numbers")
    # Without its Customizer it stays as it is.
    center.api("DELETE", f"{CUSTOMIZERS}/by-place")
    patch(center, f"/clusters/root{WEB}", {"metadata": {"labels": {"touched": "yes"}}})
    patch(center, f"/clusters/root{PAGE}", {"data": {"index.html": "last"}})
    wait_for("the other object", lambda: florin.api("GET", PAGE)["data"]["index.html"] == "last")
    assert env(florin) == "numbers"


def test_the_example_of_the_page_is_valid():
    for block in re.findall(r"<<YAML\n(.*?)^YAML", (ROOT / "docs/how-to/customization.md").read_text(), re.M | re.S):
        assert all(yaml.safe_load_all(block.replace("\\$", "$")))
