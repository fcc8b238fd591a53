"""An unmodified kubelet on an edge. It is no part of this repository: SELVEDGE_UPSTREAM names a directory with kubelet 1.36 and `fakecri`, a
container runtime that runs nothing; without them, and without root, there is nothing to try."""
import json
import os
import pathlib
import subprocess
import time

import pytest

from center import Tools, die_with_parent, free_port, wait_for
from edge import fleet, in_sync
from manifests import container, pod
from test_identity import Client, certificate, csr
from test_upstream_programs import kubeconfig

PROGRAMS = pathlib.Path(os.environ.get("SELVEDGE_UPSTREAM", "/nowhere"))
SHOP = "root:shop"
PODS = "/api/v1/namespaces/default/pods"

pytestmark = pytest.mark.skipif(not (PROGRAMS / "kubelet").exists() or not (PROGRAMS / "fakecri").exists() or os.geteuid() != 0,
                                reason="SELVEDGE_UPSTREAM names no kubelet and fakecri, or we are not root")


class Kubelet:
    """With default flags, but for where it finds its runtime and its API, and what would disturb the machine."""

    def __init__(self, server, home, name="n1"):
        self.server, self.home, self.name = server, home, name
        self.processes, self.starts = [], 0
        tools, admin = Tools(server, home / "home"), Client(server, cert=(server.cert, server.key))
        base, _ = csr(admin, home, name, f"/O=system:nodes/CN=system:node:{name}", "kubernetes.io/kube-apiserver-client-kubelet")
        tools.kubectl("certificate", "approve", name)
        self.kubeconfig = kubeconfig(server, home / "kubelet.kubeconfig", certificate(server, base, name))
        self.config = home / "kubelet.yaml"
        self.config.write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "failSwapOn": False, "failCgroupV1": False, "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False, "enforceNodeAllocatable": [], "localStorageCapacityIsolation": False,
            "containerRuntimeEndpoint": f"unix://{home}/cri.sock", "port": free_port(), "healthzPort": 0,
            "authentication": {"x509": {"clientCAFile": str(server.ca)}}}))

    def start(self):
        self.starts += 1
        for name, command in [
                ("cri", [PROGRAMS / "fakecri", f"unix://{self.home}/cri.sock"]),
                ("kubelet", [PROGRAMS / "kubelet", "--kubeconfig", self.kubeconfig, "--config", self.config, "--hostname-override", self.name,
                             "--root-dir", self.home / "root", "--cert-dir", self.home / "certs"])]:
            with open(self.home / f"{name}{self.starts}.log", "wb") as log:
                self.processes.append(subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, preexec_fn=die_with_parent,
                                                       # A runtime that names no log file makes a kubelet clean up in its working directory.
                                                       cwd=self.home))
        return self

    def kill(self):
        for process in reversed(self.processes):
            process.kill()
            process.wait(30)
        self.processes = []
        # As a reboot would: what is only in memory is gone.
        for line in reversed(pathlib.Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(self.home)):
                subprocess.run(["umount", line.split()[1]], check=False, timeout=60)

    def log(self):
        return (self.home / f"kubelet{self.starts}.log").read_text(errors="replace")


@pytest.mark.timeout(300)
def test_kubelet_runs_what_the_center_says_and_keeps_it_offline(tmp_path):
    with fleet("florin", directory=tmp_path, wire=True) as (center, florin):
        at = f"/clusters/{SHOP}/api/v1/namespaces/default"
        kubelet = Kubelet(florin, tmp_path).start()
        try:
            node = lambda: florin.api("GET", "/api/v1/nodes/n1")
            wait_for("the node", node, 60, every=0.2)
            ready = lambda: any(c["type"] == "Ready" and c["status"] == "True" for c in node()["status"]["conditions"])
            wait_for("the node to be ready", ready, 60, every=0.2)
            leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
            renewed = lambda: florin.api("GET", f"{leases}/n1")["spec"]["renewTime"]
            first = wait_for("the lease", renewed, 30, every=0.2)

            # Declared at the center; bound there; with a Secret, a ConfigMap and a token of its account.
            center.api("POST", f"{at}/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"k": "v"}})
            center.api("POST", f"{at}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page"}, "data": {"p": "q"}})
            volumes = [{"name": "key", "secret": {"secretName": "key"}}, {"name": "page", "configMap": {"name": "page"}}]
            mounts = [{"name": "key", "mountPath": "/key"}, {"name": "page", "mountPath": "/page"}]
            center.api("POST", f"{at}/pods", pod("web", nodeName="n1", volumes=volumes, containers=[container(volumeMounts=mounts)]))
            in_sync(center, SHOP, florin, collections=(PODS,))
            running = lambda: florin.api("GET", f"{PODS}/web").get("status", {}).get("phase") == "Running"
            wait_for("the pod to run", running, 90, every=0.3)
            uid = florin.api("GET", f"{PODS}/web")["metadata"]["uid"]
            token = next((tmp_path / "root/pods" / uid / "volumes").rglob("token"))
            claims = Client(florin, token=token.read_text()).who()
            assert claims["username"] == "system:serviceaccount:default:default"
            assert next((tmp_path / "root/pods" / uid / "volumes").rglob("k")).read_text() == "v"
            wait_for("the lease to be renewed", lambda: renewed() != first, 30, every=0.5)

            # Offline, then a reboot of everything: the edge, the runtime and the kubelet.
            florin.through.cut()
            kubelet.kill()
            florin.kill()
            florin.start()
            before = renewed()
            kubelet.start()
            wait_for("the lease after the reboot", lambda: renewed() != before, 60, every=0.5)
            wait_for("the pod after the reboot", running, 90, every=0.3)
            assert florin.api("GET", f"{PODS}/web")["metadata"]["uid"] == uid
            fresh = florin.api("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})["status"]["token"]
            assert Client(florin, token=fresh).who()["username"].endswith(":default")

            # Deleted at the center meanwhile: when the link is back, the kubelet ends it in order.
            center.api("DELETE", f"{at}/pods/web")
            time.sleep(1)
            assert running(), "losing the link deletes nothing"
            florin.through.open()
            wait_for("the pod's end", lambda: florin.request("GET", f"{PODS}/web")[0] == 404, 90, every=0.3)
        except AssertionError:
            print(kubelet.log()[-3000:], florin.log_tail())
            raise
        finally:
            kubelet.kill()
        refused = [line for line in kubelet.log().splitlines() if "forbidden" in line.lower() or "Unauthorized" in line]
        assert not refused, refused[:5]
