"""Kubernetes' own programs with their usual identities and nothing more. They are no part of this repository: SELVEDGE_UPSTREAM
names a directory with kube-controller-manager and kube-scheduler 1.36; without it there is nothing to try."""
import os
import pathlib
import subprocess

import pytest

from center import Center, Tools, die_with_parent, free_port, wait_for
from test_identity import certificate, csr, Client

PROGRAMS = pathlib.Path(os.environ.get("SELVEDGE_UPSTREAM", "/nowhere"))

pytestmark = pytest.mark.skipif(not (PROGRAMS / "kube-scheduler").exists(), reason="SELVEDGE_UPSTREAM names no programs")


def kubeconfig(center, path, cert):
    path.write_text(f"""apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "{center.url}", certificate-authority: {center.ca}}}}}]
users: [{{name: u, user: {{client-certificate: {cert[0]}, client-key: {cert[1]}}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
""")
    return str(path)


def test_controllers_and_scheduler_need_no_more_than_their_names(tmp_path):
    center = Center(tmp_path / "data").start()
    tools = Tools(center, tmp_path / "home")
    admin = Client(center, cert=(center.cert, center.key))
    running = []
    try:
        for name, more in [("kube-controller-manager", ["--use-service-account-credentials=true", "--root-ca-file", center.ca]),
                           ("kube-scheduler", [])]:
            base, _ = csr(admin, tmp_path, name, f"/CN=system:{name}", "kubernetes.io/kube-apiserver-client")
            tools.kubectl("certificate", "approve", name)
            config = kubeconfig(center, tmp_path / f"{name}.kubeconfig", certificate(center, base, name))
            command = [PROGRAMS / name, "--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig",
                       config, "--secure-port", str(free_port()), "--cert-dir", tmp_path / name, *more]
            log = open(tmp_path / f"{name}.log", "wb")
            running.append(subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, preexec_fn=die_with_parent))
        center.api("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        ready = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}}
        center.api("PUT", "/api/v1/nodes/n/status", ready)
        tools.kubectl("create", "deployment", "web", "--image=x", "--replicas=2")
        placed = lambda: len([p for p in tools.json("get", "pods", "-l", "app=web")["items"] if p["spec"].get("nodeName") == "n"]) == 2
        wait_for("two pods on the node", placed, 60, every=0.5)
        tools.kubectl("delete", "deployment", "web")
        wait_for("their end", lambda: not tools.json("get", "replicasets", "-l", "app=web")["items"], 30, every=0.5)
    finally:
        for program in running:
            program.kill()
            program.wait(30)
        center.kill()
    for name in ("kube-controller-manager", "kube-scheduler"):
        refused = [line for line in (tmp_path / f"{name}.log").read_text(errors="replace").splitlines()
                   if "forbidden" in line.lower() or "Unauthorized" in line]
        assert not refused, refused[:5]
