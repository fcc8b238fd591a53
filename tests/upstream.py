"""Kubernetes' own API server with an etcd, for trying against the original what is otherwise tried against our own. Its programs are no part of this
repository: SELVEDGE_UPSTREAM names a directory that has them."""
import base64
import os
import pathlib
import subprocess

import yaml

from center import Center, Etcd, die_with_parent, free_port, wait_for

PROGRAMS = pathlib.Path(os.environ.get("SELVEDGE_UPSTREAM", "/nowhere"))
# What every cluster has besides its workload controllers.
HOUSEKEEPING = ("garbage-collector-controller,namespace-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,"
                "resourcequota-controller,clusterrole-aggregation-controller")


class Upstream(Center):
    """Started, asked and stopped like a Center. `controllers` are those of kube-controller-manager that run, "" for none of it."""

    def __init__(self, directory, controllers=HOUSEKEEPING):
        super().__init__(directory)
        self.controllers = controllers
        self.data_dir.mkdir(parents=True)
        self.pki = self.data_dir / "pki"
        self.programs = []

    def start(self, seconds=60.0, wait=True):
        self.etcd = Etcd(self.data_dir)
        self.port = self.port or free_port()
        self._certify()
        user = {"token": "admin"}
        ca = base64.b64encode((self.pki / "ca.crt").read_bytes()).decode()
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": user}],
                  "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{self.port}", "certificate-authority-data": ca}}],
                  "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
        self.kubeconfig.write_text(yaml.safe_dump(config))
        p = self.pki
        self.process = self._run(
            "kube-apiserver", "--etcd-servers", self.etcd.endpoint, "--bind-address", "127.0.0.1", "--secure-port", self.port, "--cert-dir", p,
            "--tls-cert-file", p / "server.crt", "--tls-private-key-file", p / "server.key", "--client-ca-file", p / "ca.crt",
            "--token-auth-file", p / "tokens", "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file",
            p / "accounts.key", "--service-account-signing-key-file", p / "accounts.key", "--service-cluster-ip-range", "10.96.0.0/16",
            "--authorization-mode", "RBAC")
        self._read_kubeconfig()
        wait_for("kube-apiserver", lambda: self.request("GET", "/readyz")[0] == 200, seconds, every=0.2)
        if self.controllers:
            self._run("kube-controller-manager", "--kubeconfig", self.kubeconfig, "--root-ca-file", p / "ca.crt", "--leader-elect=false",
                      "--controllers", self.controllers, "--secure-port", "0", "--service-account-private-key-file", p / "accounts.key",
                      "--use-service-account-credentials=false")
        return self

    def _certify(self):
        if self.pki.exists():
            return
        self.pki.mkdir()

        def openssl(*args):
            subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=self.pki, timeout=60)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=upstream")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=kube-apiserver")
        (self.pki / "names").write_text("subjectAltName=IP:127.0.0.1,IP:10.96.0.1\n")
        openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.crt",
                "-days", "2", "-extfile", "names")
        openssl("genrsa", "-out", "accounts.key", "2048")
        (self.pki / "tokens").write_text('admin,admin,admin,"system:masters"\n')

    def _run(self, name, *args):
        with open(self.log_path, "ab") as log:
            program = subprocess.Popen([str(PROGRAMS / name), *map(str, args)], stdout=log, stderr=log, preexec_fn=die_with_parent)
        self.programs.append(program)
        return program

    def kill(self):
        for program in reversed(self.programs):
            program.kill()
            program.wait(30)
        self.programs.clear()
        self.etcd.stop()

    stop = kill
