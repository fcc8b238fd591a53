"""The official Python client: typed, dynamic, watch with resume, paging, patches."""
import threading

import pytest
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

from center import wait_for
from manifests import crd, deployment


@pytest.fixture(scope="module")
def api(center):
    return config.new_client_from_config(str(center.kubeconfig))


@pytest.fixture(scope="module")
def core(api):
    return client.CoreV1Api(api)


def make(core, ns, *names):
    return [core.create_namespaced_config_map(ns, client.V1ConfigMap(metadata=client.V1ObjectMeta(name=n), data={"n": n}))
            for n in names]


def test_create_read_update_delete(core, ns):
    made = make(core, ns, "a")[0]
    made.data["x"] = "y"
    replaced = core.replace_namespaced_config_map("a", ns, made)
    assert int(replaced.metadata.resource_version) > int(made.metadata.resource_version)
    with pytest.raises(ApiException) as stale:
        core.replace_namespaced_config_map("a", ns, made)
    assert stale.value.status == 409 and "Conflict" in stale.value.body
    core.delete_namespaced_config_map("a", ns)
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("a", ns)
    assert gone.value.status == 404


def test_pages_are_one_snapshot(core, ns):
    make(core, ns, *[f"c{i:03}" for i in range(30)])
    first = core.list_namespaced_config_map(ns, limit=10)
    make(core, ns, "c000-late", "zzz-late")
    core.delete_namespaced_config_map("c029", ns)
    names, page = [i.metadata.name for i in first.items], first
    while page.metadata._continue:
        page = core.list_namespaced_config_map(ns, limit=10, _continue=page.metadata._continue)
        assert page.metadata.resource_version == first.metadata.resource_version
        names += [i.metadata.name for i in page.items]
    names = [n for n in names if n.startswith(("c", "z"))]
    assert names == [f"c{i:03}" for i in range(30)]


def test_watch_resumes_without_gap_or_duplicate(core, ns):
    wait_for("the root CA", lambda: core.read_namespaced_config_map("kube-root-ca.crt", ns))
    start = core.list_namespaced_config_map(ns).metadata.resource_version
    make(core, ns, *[f"c{i}" for i in range(10)])
    seen, last = [], start
    while len(seen) < 10:  # three events at a time, each from where the one before ended
        w = watch.Watch()
        for event in w.stream(core.list_namespaced_config_map, ns, resource_version=last, timeout_seconds=5):
            seen.append((event["type"], event["object"].metadata.name))
            last = event["object"].metadata.resource_version
            if len(seen) % 3 == 0 or len(seen) == 10:
                w.stop()
                break
    assert seen == [("ADDED", f"c{i}") for i in range(10)]


def test_informer_sees_every_change(core, ns):
    """What an informer does: list, watch from there, keep a copy; the copy must equal the server in the end."""
    listed = core.list_namespaced_config_map(ns)
    copy = {i.metadata.name: i.metadata.resource_version for i in listed.items}
    done = threading.Event()

    def follow():
        for event in watch.Watch().stream(core.list_namespaced_config_map, ns, timeout_seconds=30,
                                          resource_version=listed.metadata.resource_version, allow_watch_bookmarks=True):
            o = event["object"]
            if event["type"] == "BOOKMARK":
                continue
            if event["type"] == "DELETED":
                copy.pop(o.metadata.name)
            else:
                copy[o.metadata.name] = o.metadata.resource_version
            if o.metadata.name == "end":
                return done.set()

    threading.Thread(target=follow, daemon=True).start()
    make(core, ns, *[f"c{i}" for i in range(20)])
    for i in range(0, 20, 2):
        core.patch_namespaced_config_map(f"c{i}", ns, {"data": {"n": "changed"}})
    for i in range(0, 20, 3):
        core.delete_namespaced_config_map(f"c{i}", ns)
    make(core, ns, "end")
    assert done.wait(30)
    assert copy == {i.metadata.name: i.metadata.resource_version for i in core.list_namespaced_config_map(ns).items}


def test_patches(api, core, ns):
    make(core, ns, "a")
    core.patch_namespaced_config_map("a", ns, {"data": {"x": "1"}})
    core.patch_namespaced_config_map("a", ns, [{"op": "remove", "path": "/data/x"}])
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(ns, deployment())
    scaled = apps.patch_namespaced_deployment_scale("web", ns, {"spec": {"replicas": 7}})
    assert scaled.spec.replicas == 7 and scaled.status.selector == "app=web"


def test_dynamic_client_discovers_and_applies(api, center, ns):
    group = f"d{ns}.example.com"
    center.api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(group=group))
    dyn = wait_for("the kind", lambda: discovered(api, group))
    fabrics = dyn.resources.get(api_version=f"{group}/v1", kind="Fabric")
    body = {"apiVersion": f"{group}/v1", "kind": "Fabric", "metadata": {"name": "denim"}, "spec": {"threads": 2}}
    made = fabrics.server_side_apply(body=body, namespace=ns, field_manager="test")
    assert made.spec.colour == "indigo"
    fabrics.patch(body={"spec": {"threads": 4}}, name="denim", namespace=ns, content_type="application/merge-patch+json")
    assert fabrics.get(name="denim", namespace=ns).spec.threads == 4
    for event in fabrics.watch(namespace=ns, timeout=5):
        assert event["type"] == "ADDED" and event["object"].metadata.name == "denim"
        break
    fabrics.delete(name="denim", namespace=ns)
    center.api("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/fabrics.{group}")


def discovered(api, group):
    dyn = dynamic.DynamicClient(api)
    dyn.resources.get(api_version=f"{group}/v1", kind="Fabric")
    return dyn


def test_old_version_is_expired_and_future_one_too_large(center, ns):
    path = f"/api/v1/namespaces/{ns}/configmaps"
    now = int(center.api("GET", path)["metadata"]["resourceVersion"])
    status, _, _ = center.request("GET", f"{path}?resourceVersion={now + 100000}&resourceVersionMatch=NotOlderThan", timeout=20)
    assert status == 504
    status, headers, body = center.request("GET", f"{path}?limit=1&continue=nonsense")
    assert status == 400 and b"continue key is not valid" in body
