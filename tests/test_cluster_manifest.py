"""An edge inside a cluster: what `selvedge edge manifest --runtime cluster` prints gives it the rights that it needs. Here our own server is the
cluster, and the edge runs beside it with the token of that ServiceAccount. And the page's commands, word for word."""
import os
import re
import signal
import subprocess

import pytest
import yaml

from center import ROOT, TOOLS, Center, Tools, binary, die_with_parent, wait_for
from edge import WORKSPACE, Edge, annotate, make_workspace, selvedge

SHOP = "root:shop"
AT = f"/clusters/{SHOP}"


@pytest.fixture
def world(tmp_path):
    center, cluster = Center(tmp_path / "center"), Center(tmp_path / "cluster")
    try:
        yield center.start(), cluster.start(), tmp_path
    finally:
        center.kill()
        cluster.kill()


def manifest(center, name):
    token = selvedge("join-token", "create", "--kubeconfig", center.kubeconfig, "--name", name).strip()
    printed = selvedge("edge", "manifest", "--center", center.url, "--token", token, "--name", name, "--runtime", "cluster")
    return token, list(yaml.safe_load_all(printed))


def test_its_service_account_may_do_what_it_has_to(world):
    center, cluster, home = world
    make_workspace(center, SHOP)
    tools = Tools(cluster, home / "home")
    token, objects = manifest(center, "florin")
    tools.kubectl("apply", "-f", "-", stdin=objects)
    bearer = tools.kubectl("-n", "selvedge-edge", "create", "token", "selvedge-edge").strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": bearer}
    account = home / "account.kubeconfig"
    account.write_text(yaml.safe_dump(config))
    # As the pod would start it, but for where it keeps its data and listens, and how it finds the cluster.
    [pod] = [o for o in objects if o["kind"] == "Deployment"][0]["spec"]["template"]["spec"]["containers"]
    args = pod["args"][1:]
    for flag in ("--data-dir", "--listen", "--center", "--name"):
        at = args.index(flag)
        del args[at:at + 2]
    assert ["--runtime", "cluster"] == args[args.index("--runtime"):args.index("--runtime") + 2]
    florin = Edge(center, home / "florin", "florin", SHOP, args=(*args, "--kubeconfig", account))
    try:
        florin.start(token=token).wait_connected()
        rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        placed = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "shop"}, "stringData": {"a": "b"}},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": {
                "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                    "containers": [{"name": "web", "image": "nginx"}]}}}},
            # More than the account itself may do.
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "mighty"}, "rules": rules},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "mighty"},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "mighty"},
             "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "shop"}]},
        ]
        at_center = Tools(center, home / "center-home")
        at_center.kubectl("--server", f"{center.url}{AT}", "apply", "-f", "-", stdin=placed)
        for path in ("/api/v1/namespaces/shop/secrets/key", "/apis/apps/v1/namespaces/shop/deployments/web",
                     "/apis/rbac.authorization.k8s.io/v1/clusterroles/mighty",
                     "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/mighty"):
            wait_for(path, lambda p=path: cluster.request("GET", p)[0] == 200)
        assert (florin.condition("ObjectsRefused") or {}).get("status") != "True"
        at_center.kubectl("--server", f"{center.url}{AT}", "delete", "clusterrolebinding", "mighty")
        wait_for("it to go", lambda: cluster.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/mighty")[0] == 404)
        # Nothing that its rules do not say.
        denied = tools.kubectl("auth", "can-i", "impersonate", "users", "--as=system:serviceaccount:selvedge-edge:selvedge-edge", code=1)
        assert "no" in denied
    finally:
        florin.kill()


def test_the_page(world):
    center, cluster, home = world
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/how-to/cluster-runtime.md").read_text(), re.M | re.S)
    [serving] = [b for b in blocks if b.startswith("selvedge edge --data-dir")]
    port = re.search(r"127\.0\.0\.1:(\d+)", serving).group(1)
    env = {"PATH": f"{TOOLS}:/usr/bin:/bin", "HOME": str(home), "TERM": "dumb", "KUBECONFIG": str(center.kubeconfig),
           "CENTER": center.url, "CLUSTER": str(cluster.kubeconfig)}
    here = lambda text: text.replace(".data/", f"{home}/data/").replace(f"127.0.0.1:{port}", "127.0.0.1:0")  # noqa: E731
    alias = f"selvedge() {{ {binary()} \"$@\"; }}\n"
    make_workspace(center, SHOP)
    center.api("POST", f"{AT}/api/v1/namespaces/default/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "offer"}})
    said, edge = "", None
    try:
        for block in blocks:
            if block is serving:
                script = alias + f"TOKEN=$({binary()} join-token create --name florin)\n" + here(block)
                edge = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], env=env, preexec_fn=die_with_parent,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
                wait_for("the edge", lambda: (home / "data/florin/admin.kubeconfig").exists(), 40)
                annotate(center, "florin", **{WORKSPACE: SHOP})
                read = f"kubectl --kubeconfig {home}/data/florin/admin.kubeconfig -n kube-system get configmap selvedge-cluster"
                wait_for("its first words", lambda: subprocess.run(read.split(), env=env, capture_output=True, timeout=60).returncode == 0, 40)
                continue
            done = subprocess.run(["bash", "-exuo", "pipefail", "-c", alias + here(block)], env=env, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, block + done.stdout[-2000:] + done.stderr[-2000:]
            said += done.stdout
    finally:
        if edge:
            # The shell and the edge that it started.
            os.killpg(edge.pid, signal.SIGKILL)
            edge.wait(30)
    for words in ("deployment.apps/selvedge-edge created", "Online", "yes"):
        assert words in said, said

