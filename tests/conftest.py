"""Fixtures: a center per store, shared by the tests of a run; a fresh namespace per test."""
import itertools
import re

import pytest

from center import Center, Etcd, Tools

pytest_plugins = ["workers"]


@pytest.fixture(scope="session", params=["sqlite", "etcd"])
def center(request, tmp_path_factory):
    base = tmp_path_factory.mktemp(request.param)
    etcd = Etcd(base) if request.param == "etcd" else None
    center = Center(base / "data", request.param, etcd)
    try:
        yield center.start()
        code = center.stop()
    finally:
        center.kill()
        if etcd:
            etcd.stop()
    assert code == 0, f"SIGTERM should end the center with 0, not {code}\n{center.log_tail()}"
    assert "panicked" not in center.log_path.read_text(errors="replace")


@pytest.fixture(scope="session")
def tools(center, tmp_path_factory):
    return Tools(center, tmp_path_factory.mktemp("home"))


counter = itertools.count(1)


@pytest.fixture
def ns(center, request):
    """The name of a namespace of the test's own."""
    short = re.sub(r"[^a-z0-9]+", "-", request.node.originalname.lower().removeprefix("test_"))[:40].strip("-")
    name = f"{short}-{next(counter)}"
    center.api("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    center.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kubectl(tools, ns):
    """kubectl in the test's namespace; `.json(...)` decodes, `.all(...)` adds no namespace."""

    def run(*args, **kw):
        return tools.kubectl("-n", ns, *args, **kw)

    run.json = lambda *args, **kw: tools.json("-n", ns, *args, **kw)
    run.all, run.ns, run.tools, run.center = tools.kubectl, ns, tools, tools.center
    return run
