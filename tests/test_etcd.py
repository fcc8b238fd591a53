"""etcd as a store: over TLS, and when it goes away and comes back."""
import http.client
import json
import shutil
import subprocess
import threading
import time

import pytest

from center import TOOLS, Center, Etcd, binary, die_with_parent, free_port, wait_for

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def openssl(*args, cwd):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, cwd=cwd, timeout=60)


@pytest.fixture
def certificates(tmp_path):
    """An authority, a certificate for etcd and one for its client."""
    if not shutil.which("openssl"):
        pytest.skip("makes certificates with openssl")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=etcd-ca", "-days", 2, cwd=tmp_path)
    for name, use in (("server", "serverAuth,clientAuth"), ("client", "clientAuth")):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", cwd=tmp_path)
        (tmp_path / f"{name}.ext").write_text(f"subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage={use}\n")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", 2, "-extfile", f"{name}.ext",
                "-out", f"{name}.crt", cwd=tmp_path)
    return tmp_path


def test_over_tls(certificates, tmp_path):
    at = f"https://127.0.0.1:{free_port()}"
    peer = f"http://127.0.0.1:{free_port()}"
    with open(tmp_path / "etcd.log", "ab") as log:
        etcd = subprocess.Popen([str(TOOLS / "etcd"), "--data-dir", str(tmp_path / "etcd"), "--name", "one", "--listen-client-urls", at, "--advertise-client-urls", at,
                                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}", "--cert-file", "server.crt",
                                 "--key-file", "server.key", "--trusted-ca-file", "ca.crt", "--client-cert-auth"], cwd=tmp_path, stdout=log, stderr=log, preexec_fn=die_with_parent)
    files = ["--etcd-cafile", tmp_path / "ca.crt", "--etcd-certfile", tmp_path / "client.crt", "--etcd-keyfile", tmp_path / "client.key"]
    flags = ["--etcd-endpoints", at, *map(str, files)]
    center = Center(tmp_path / "data", "etcd", args=flags)
    try:
        wait_for("etcd", lambda: b"ready to serve client requests" in (tmp_path / "etcd.log").read_bytes())
        center.start()
        center.api("POST", CONFIGMAPS, {"metadata": {"name": "sealed"}, "data": {"a": "b"}})
        center.stop()
        center.start()
        assert center.api("GET", f"{CONFIGMAPS}/sealed")["data"] == {"a": "b"}
        center.stop()

        def refused(*args):
            done = subprocess.run([binary(), "center", "--data-dir", str(tmp_path / "other"), "--listen", "127.0.0.1:0", "--store", "etcd", *map(str, args)],
                                  capture_output=True, text=True, timeout=40)
            assert done.returncode != 0
            return done.stderr
        assert "--etcd-cafile" in refused("--etcd-endpoints", at)
        assert "cannot use etcd" in refused("--etcd-endpoints", at, "--etcd-cafile", tmp_path / "ca.crt"), "etcd wants to see a certificate"
        assert "no-such-file" in refused("--etcd-endpoints", at, "--etcd-cafile", "no-such-file")
    finally:
        center.kill()
        etcd.kill()
        etcd.wait(30)


class Watcher(threading.Thread):
    """Sees every change; resumes where it was when its connection ends."""

    def __init__(self, center, revision):
        super().__init__(daemon=True)
        self.center, self.revision, self.seen, self.stopping = center, revision, [], False

    def run(self):
        while not self.stopping:
            try:
                conn = self.center.connection(timeout=3)
                conn.request("GET", f"{CONFIGMAPS}?watch=1&resourceVersion={self.revision}", headers={"Accept": "application/json"})
                for line in conn.getresponse():
                    event = json.loads(line)
                    assert event["type"] != "ERROR", event
                    self.revision = event["object"]["metadata"]["resourceVersion"]
                    self.seen.append(event["object"]["metadata"]["name"])
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)


def test_etcd_goes_and_comes_back(tmp_path):
    """While etcd is away writes are refused, not lost; afterwards everything goes on, and watchers have missed nothing."""
    etcd = Etcd(tmp_path)
    center = Center(tmp_path / "data", "etcd", etcd)
    try:
        center.start()
        watcher = Watcher(center, center.api("GET", CONFIGMAPS)["metadata"]["resourceVersion"])
        watcher.start()
        written = []

        def write(name):
            status, _, raw = center.request("POST", CONFIGMAPS, {"metadata": {"name": name}}, timeout=30)
            if status == 201:
                written.append(name)
            return status, raw

        for n in range(20):
            assert write(f"before-{n}")[0] == 201
        for round_ in range(2):
            etcd.process.kill()
            etcd.process.wait(30)
            status, raw = write(f"away-{round_}")
            assert status in (500, 503, 504), raw
            assert json.loads(raw)["kind"] == "Status" and center.alive()
            restart(etcd)
            wait_for("writes again", lambda: write(f"back-{round_}-{time.monotonic_ns()}")[0] == 201, seconds=30, every=0.2)
            for n in range(20):
                assert write(f"after-{round_}-{n}")[0] == 201
        wait_for("the watcher", lambda: set(written) <= set(watcher.seen))
        watcher.stopping = True
        names = [item["metadata"]["name"] for item in center.api("GET", CONFIGMAPS)["items"]]
        assert set(written) <= set(names), "acknowledged, then lost"
        assert len(watcher.seen) == len(set(watcher.seen)), "a watcher saw something twice"
        assert "panicked" not in center.log_path.read_text(errors="replace")
        assert center.stop() == 0
    finally:
        center.kill()
        etcd.stop()


def restart(etcd):
    command = etcd.process.args
    etcd.process = subprocess.Popen(command, stdout=etcd.log, stderr=etcd.log, preexec_fn=die_with_parent)
    wait_for("etcd", etcd.healthy)
