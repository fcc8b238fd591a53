"""kubectl's other verbs: create generators, bad input, label, scale, rollout, delete with every cascade, node work, tokens."""
import base64
import json
import subprocess

import pytest

from center import wait_for
from manifests import configmap, container, deployment, node, pod, service

GENERATORS = [
    ("deployment", ["d", "--image=nginx", "--replicas=2", "--port=80"]),
    ("job", ["j", "--image=busybox", "--", "true"]),
    ("cronjob", ["c", "--image=busybox", "--schedule=*/5 * * * *", "--", "true"]),
    ("configmap", ["m", "--from-literal=a=b"]),
    ("secret generic", ["s", "--from-literal=a=b"]),
    ("secret docker-registry", ["r", "--docker-username=u", "--docker-password=p", "--docker-server=registry.example.com"]),
    ("service clusterip", ["svc-c", "--tcp=80:8080"]),
    ("service nodeport", ["svc-n", "--tcp=80"]),
    ("service loadbalancer", ["svc-l", "--tcp=80"]),
    ("service externalname", ["svc-e", "--external-name=example.com"]),
    ("ingress", ["i", "--rule=example.com/path*=web:80"]),
    ("serviceaccount", ["sa"]),
    ("role", ["ro", "--verb=get,list", "--resource=pods,deployments.apps"]),
    ("rolebinding", ["rb", "--role=ro", "--user=jane"]),
    ("quota", ["q", "--hard=pods=10,configmaps=100"]),
    ("poddisruptionbudget", ["pdb", "--selector=app=web", "--min-available=50%"]),
]
CLUSTER_GENERATORS = [
    ("namespace", []),
    ("clusterrole", ["--verb=get", "--resource=nodes"]),
    ("clusterrolebinding", ["--clusterrole=view", "--group=dev"]),
    ("priorityclass", ["--value=1000", "--description=high"]),
]


@pytest.mark.parametrize("what,args", GENERATORS, ids=[g[0].replace(" ", "-") for g in GENERATORS])
def test_create(kubectl, what, args):
    out = kubectl("create", *what.split(), *args)
    assert "created" in out
    kubectl("get", out.split()[0])


@pytest.mark.parametrize("what,args", CLUSTER_GENERATORS, ids=[g[0] for g in CLUSTER_GENERATORS])
def test_create_cluster_wide(kubectl, what, args):
    name = f"{what}-{kubectl.ns}"
    kubectl.all("create", what, name, *args)
    assert kubectl.tools.json("get", what, name)["metadata"]["uid"]
    kubectl.all("delete", what, name, "--wait=false")


def test_run_expose_autoscale_set(kubectl):
    kubectl("run", "one", "--image=nginx", "--port=80", "--labels=app=one")
    assert kubectl.json("get", "pod", "one")["status"]["phase"] == "Pending"
    kubectl("expose", "pod", "one", "--port=80")
    service = kubectl.json("get", "svc", "one")["spec"]
    assert service["selector"] == {"app": "one"} and service["clusterIP"].count(".") == 3
    kubectl("create", "deployment", "web", "--image=nginx")
    kubectl("autoscale", "deployment", "web", "--min=1", "--max=3", "--cpu=80%")
    kubectl("get", "hpa", "web")
    kubectl("set", "image", "deployment/web", "nginx=nginx:2")
    kubectl("set", "resources", "deployment/web", "--requests=cpu=100m")
    kubectl("set", "serviceaccount", "deployment/web", "default")
    spec = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == "nginx:2" and spec["serviceAccountName"] == "default"
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "100m"}


def test_label_and_annotate(kubectl):
    kubectl("create", "configmap", "m")
    kubectl("label", "cm", "m", "tier=front")
    assert "--overwrite is false" in kubectl("label", "cm", "m", "tier=back", code=1)
    kubectl("label", "cm", "m", "tier=back", "--overwrite")
    kubectl("annotate", "cm", "m", "note=hello world")
    meta = kubectl.json("get", "cm", "m")["metadata"]
    assert meta["labels"] == {"tier": "back"} and meta["annotations"] == {"note": "hello world"}
    kubectl("label", "cm", "m", "tier-")
    assert "labels" not in kubectl.json("get", "cm", "m")["metadata"]
    bad = '{"metadata":{"labels":{"tier":"not valid!"}}}'
    assert "metadata.labels: Invalid value" in kubectl("patch", "cm", "m", "-p", bad, code=1)


def test_scale_and_its_precondition(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment(replicas=2))
    kubectl("scale", "deployment/web", "--current-replicas=2", "--replicas=4")
    assert "Expected replicas" in kubectl("scale", "deployment/web", "--current-replicas=2", "--replicas=1", code=1)
    assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 4


def test_rollout_pause_resume_restart_status(kubectl):
    kubectl("apply", "-f", "-", stdin=deployment())
    kubectl("rollout", "pause", "deployment/web")
    assert kubectl.json("get", "deployment", "web")["spec"]["paused"] is True
    assert "already paused" in kubectl("rollout", "pause", "deployment/web", code=1)
    kubectl("rollout", "resume", "deployment/web")
    before = kubectl.json("get", "deployment", "web")["metadata"]["generation"]
    kubectl("rollout", "restart", "deployment/web")
    after = kubectl.json("get", "deployment", "web")
    assert after["metadata"]["generation"] == before + 1
    assert "kubectl.kubernetes.io/restartedAt" in after["spec"]["template"]["metadata"]["annotations"]
    assert "Waiting for deployment" in kubectl("rollout", "status", "deployment/web", "--timeout=1s", code=1)


@pytest.mark.parametrize("bad,message", [
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Upper"}}, "Invalid value"),
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}, "name"),
    ({"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "a"}}, "no matches for kind"),
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": 1}}, "cannot unmarshal|expected string"),
    ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dta": {}}, 'unknown field "dta"'),
    ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
      "template": {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [container()]}}}}, "does not match template"),
    ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}, "Required value"),
    (service(ports=[]), "spec.ports"),
])
def test_bad_input_is_explained(kubectl, bad, message):
    out = kubectl("create", "-f", "-", stdin=bad, code=1)
    assert any(m in out for m in message.split("|")), out


def test_second_create_says_already_exists(kubectl):
    kubectl("create", "configmap", "m")
    assert 'configmaps "m" already exists' in kubectl("create", "configmap", "m", code=1)


def owned_by(owner, name, block=False):
    child = configmap(name)
    child["metadata"]["ownerReferences"] = [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                                            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": block}]
    return child


def make_family(kubectl):
    kubectl("create", "configmap", "parent")
    parent = kubectl.json("get", "cm", "parent")
    kubectl("create", "-f", "-", stdin=owned_by(parent, "child", block=True))


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_delete_takes_the_dependents_along(kubectl, cascade):
    make_family(kubectl)
    kubectl("delete", "cm", "parent", f"--cascade={cascade}", "--timeout=20s")
    if cascade == "foreground":
        assert kubectl("get", "cm", "child", "--ignore-not-found") == "", "foreground means the child is gone first"
    wait_for("the child to be collected", lambda: kubectl("get", "cm", "child", "--ignore-not-found") == "")


def test_delete_orphans(kubectl):
    make_family(kubectl)
    kubectl("delete", "cm", "parent", "--cascade=orphan", "--timeout=20s")
    wait_for("the owner reference to be dropped",
             lambda: "ownerReferences" not in kubectl.json("get", "cm", "child")["metadata"])


def test_owner_that_never_was(kubectl):
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "7b6f4b8e-0000-4000-8000-000000000000"}}
    kubectl("create", "-f", "-", stdin=owned_by(ghost, "child"))
    wait_for("the child of nobody to be collected", lambda: kubectl("get", "cm", "child", "--ignore-not-found") == "")


def test_finalizer_holds_the_object(kubectl):
    held = configmap("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    kubectl("create", "-f", "-", stdin=held)
    kubectl("delete", "cm", "held", "--wait=false")
    assert kubectl.json("get", "cm", "held")["metadata"]["deletionTimestamp"]
    kubectl("patch", "cm", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert kubectl("get", "cm", "held", "--ignore-not-found") == ""


def test_namespace_life_cycle(kubectl):
    name = f"{kubectl.ns}-inner"
    kubectl.all("create", "namespace", name)
    wait_for("the default service account", lambda: kubectl.all("-n", name, "get", "sa", "default", code=None))
    wait_for("the root CA", lambda: "ca.crt" in kubectl.all("-n", name, "get", "cm", "kube-root-ca.crt", "-o", "yaml", code=None))
    kubectl.all("-n", name, "create", "configmap", "m")
    kubectl.all("delete", "namespace", name, "--timeout=30s")
    assert "NotFound" in kubectl.all("get", "ns", name, code=1)
    assert "not found" in kubectl.all("-n", name, "create", "configmap", "m", code=1)


def test_delete_by_label_and_all(kubectl):
    kubectl("apply", "-f", "-", stdin=[configmap("a", {"x": "1"}), configmap("b", {"x": "1"}), configmap("c")])
    kubectl("delete", "cm", "-l", "x=1")
    assert "configmap/c" in kubectl("get", "cm", "-o", "name") and "configmap/a" not in kubectl("get", "cm", "-o", "name")
    kubectl("apply", "-f", "-", stdin=[pod("p1"), pod("p2")])
    kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    assert kubectl("get", "pods", "-o", "name") == ""


def test_pod_bound_to_a_node_ends_gracefully(kubectl):
    kubectl("apply", "-f", "-", stdin=pod("p", nodeName="some-node"))
    kubectl("delete", "pod", "p", "--wait=false")
    meta = kubectl.json("get", "pod", "p")["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 30 and meta["deletionTimestamp"]
    kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    assert kubectl("get", "pod", "p", "--ignore-not-found") == ""


def test_node_taint_cordon_drain(kubectl):
    name = f"n-{kubectl.ns}"
    kubectl.all("create", "-f", "-", stdin=node(name))
    kubectl.all("taint", "node", name, "dedicated=db:NoSchedule")
    kubectl.all("cordon", name)
    spec = kubectl.tools.json("get", "node", name)["spec"]
    assert spec["unschedulable"] is True
    assert {"key": "dedicated", "value": "db", "effect": "NoSchedule"} in spec["taints"]
    assert "SchedulingDisabled" in kubectl.all("get", "node", name)
    kubectl.all("uncordon", name)
    kubectl.all("taint", "node", name, "dedicated-")
    kubectl.all("drain", name, "--ignore-daemonsets", "--timeout=10s")
    kubectl.all("delete", "node", name)


def test_auth_can_i_and_whoami(kubectl):
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "*.*" in kubectl("auth", "can-i", "--list")
    assert "system:masters" in kubectl.all("auth", "whoami")


def test_create_token(kubectl):
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot", "--duration=1h", "--audience=there").strip()
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["sub"] == f"system:serviceaccount:{kubectl.ns}:robot" and claims["aud"] == ["there"]
    assert claims["exp"] - claims["iat"] == 3600
    plain = kubectl("create", "token", "robot").strip()
    who = kubectl.all("auth", "whoami", "-o", "json", "--token", plain, "--kubeconfig", tokenless(kubectl))
    assert json.loads(who)["status"]["userInfo"]["username"] == f"system:serviceaccount:{kubectl.ns}:robot"


def tokenless(kubectl):
    """A kubeconfig that names the server and no credential."""
    path = kubectl.tools.home / "anonymous.kubeconfig"
    subprocess.run(["kubectl", "config", "--kubeconfig", str(path), "set-cluster", "c", "--server", kubectl.center.url,
                    "--certificate-authority", str(kubectl.center.ca)], env=kubectl.tools.env, check=True, capture_output=True, timeout=60)
    for args in (["set-context", "c", "--cluster=c"], ["use-context", "c"]):
        subprocess.run(["kubectl", "config", "--kubeconfig", str(path), *args], env=kubectl.tools.env, check=True, capture_output=True, timeout=60)
    return path


def test_certificate_approve(kubectl, tmp_path):
    key, request = tmp_path / "key.pem", tmp_path / "request.pem"
    made = subprocess.run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=jane/O=dev"],
                          capture_output=True, timeout=60)
    if made.returncode:
        pytest.skip("openssl is not here to make a certificate request")
    name = f"csr-{kubectl.ns}"
    kubectl.all("create", "-f", "-", stdin={
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": base64.b64encode(request.read_bytes()).decode(), "signerName": "kubernetes.io/kube-apiserver-client",
                 "usages": ["client auth"]}})
    assert "Pending" in kubectl.all("get", "csr", name)
    kubectl.all("certificate", "approve", name)
    assert kubectl.tools.json("get", "csr", name)["status"]["conditions"][0]["type"] == "Approved"
    assert "Approved" in kubectl.all("get", "csr", name)
    kubectl.all("delete", "csr", name)


def test_quota_counts(kubectl):
    kubectl("create", "quota", "q", "--hard=count/configmaps=3")
    wait_for("the quota's status", lambda: kubectl.json("get", "quota", "q").get("status", {}).get("used"))
    last = ""
    for i in range(5):
        last = kubectl("create", "configmap", f"m{i}", code=None) or "refused"
    out = kubectl("create", "configmap", "last", code=1)
    assert "exceeded quota: q" in out, last


def test_service_addresses(kubectl):
    kubectl("create", "service", "nodeport", "a", "--tcp=80")
    port = kubectl.json("get", "svc", "a")["spec"]["ports"][0]["nodePort"]
    assert 30000 <= port <= 32767
    twin = service("b", type="NodePort", ports=[{"port": 80, "nodePort": port}])
    assert "provided port is already allocated" in kubectl("create", "-f", "-", stdin=twin, code=1)
    ip = kubectl.json("get", "svc", "a")["spec"]["clusterIP"]
    assert "already allocated" in kubectl("create", "-f", "-", stdin=service("c", clusterIP=ip), code=1)
    kubectl("delete", "svc", "a")
    kubectl("create", "-f", "-", stdin=service("c", clusterIP=ip))
    # What cannot be is said before anything is given out, and nothing that was asked for is dropped silently.
    for spec, why in [({"ports": [{"port": 80, "nodePort": 30123}]}, "may not be used when `type` is 'ClusterIP'"),
                      ({"ipFamilies": ["IPv4", "IPv4"], "ports": [{"port": 80}]}, "spec.ipFamilies[1]: Duplicate value"),
                      ({"clusterIP": "x", "ports": [{"port": 80}]}, "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP"),
                      ({"type": "NodePort", "ports": [{"name": "a", "port": 80, "nodePort": 30124},
                                                      {"name": "b", "port": 81, "nodePort": 30124}]},
                       "spec.ports[1].nodePort: Invalid value: 30124: provided port is already allocated")]:
        assert why in kubectl("create", "-f", "-", stdin=service("d", **spec), code=1), spec


def test_eviction(kubectl):
    kubectl("apply", "-f", "-", stdin=pod("p"))
    kubectl.center.api("POST", f"/api/v1/namespaces/{kubectl.ns}/pods/p/eviction",
                       {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": kubectl.ns}})
    wait_for("the pod to be gone", lambda: kubectl("get", "pod", "p", "--ignore-not-found") == "")


def test_resize_of_a_pod(kubectl, center):
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    kubectl("run", "grows", "--image=x", "--overrides", json.dumps({"spec": {"containers": [
        {"name": "grows", "image": "x", "resources": resources}]}}))
    more = {"spec": {"containers": [{"name": "grows", "resources": {"requests": {"cpu": "150m"}}}]}}
    kubectl("patch", "pod", "grows", "--subresource", "resize", "-p", json.dumps(more))
    pod = kubectl.json("get", "pod", "grows")
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "150m"} and pod["metadata"]["generation"] == 2
    less = {"spec": {"containers": [{"name": "grows", "resources": {"limits": {"cpu": None}}}]}}
    refused = center.api("PATCH", f"/api/v1/namespaces/{kubectl.ns}/pods/grows/resize", less, expect=[422],
                         content_type="application/strategic-merge-patch+json")
    assert "resource limits cannot be removed" in refused["message"]


def test_a_dry_run_that_is_misspelled_deletes_nothing(center, ns):
    path = f"/api/v1/namespaces/{ns}/configmaps"
    center.api("POST", path, {"metadata": {"name": "kept", "labels": {"k": "v"}}})
    for at in [f"{path}/kept?dryRun=Bogus", f"{path}?labelSelector=k&dryRun=Bogus"]:
        assert "Unsupported value" in center.api("DELETE", at, expect=[422])["message"]
    assert center.api("DELETE", f"/api/v1/watch/namespaces/{ns}/configmaps/kept", expect=[405])
    assert center.api("DELETE", f"{path}/kept?resourceVersion=1", expect=[409])
    assert center.api("GET", f"{path}/kept")
    # A collection that is deleted in pages goes page by page, and is shown as it was.
    for name in ["a", "b", "c"]:
        center.api("POST", path, {"metadata": {"name": name, "labels": {"p": "q"}, "finalizers": ["example.com/x"]}})
    page = center.api("DELETE", f"{path}?labelSelector=p&limit=2")
    assert [o["metadata"].get("deletionTimestamp") for o in page["items"]] == [None, None] and page["metadata"]["continue"]
    left = center.api("GET", f"{path}?labelSelector=p")["items"]
    assert ["deletionTimestamp" in o["metadata"] for o in left] == [True, True, False]
    for name in ["a", "b", "c"]:
        center.api("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json")
