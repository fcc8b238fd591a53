"""Certificates and keys over time: renewed, replaced, and shared by several centers."""
import contextlib
import shutil
import subprocess

import pytest
from center import Center, Etcd, Tools, binary, wait_for
from test_identity import Authority, Client, jwks, openssl


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("authorities")


def serving_certificate(center):
    with center.socket() as s:
        return s.getpeercert(binary_form=True)


def test_certificates_are_renewed_without_restart(home):
    center = Center(home / "short", args=["--certificate-lifetime=6s"]).start()
    try:
        first, pid = serving_certificate(center), center.process.pid
        admin, kubeconfig = (center.cert.read_bytes(), center.key.read_bytes()), center.kubeconfig.read_text()
        with contextlib.closing(center.connection()) as long:
            long.request("GET", "/readyz")
            assert long.getresponse().read() == b"ok"
            wait_for("a new serving certificate", lambda: serving_certificate(center) != first, 15, every=0.3)
            wait_for("a new kubeconfig", lambda: center.kubeconfig.read_text() != kubeconfig, 15, every=0.3)
            long.request("GET", "/readyz")
            assert long.getresponse().status in (200, 401), "an open connection stays open"
        center._read_kubeconfig()
        assert center.process.pid == pid and center.still_answers()
        (home / "old.crt").write_bytes(admin[0])
        (home / "old.key").write_bytes(admin[1])
        old = Client(center, cert=(home / "old.crt", home / "old.key"))
        wait_for("the old certificate to end", lambda: old.who() == 401, 10, every=0.2)
    finally:
        center.kill()


def test_one_authority_follows_another(home):
    """As docs/reference/identity.md says: first both are trusted, then the new one signs, then the old one goes."""
    center = Center(home / "moving").start()
    pki = center.data_dir / "pki"
    before = (shutil.copy(center.cert, home / "before.crt"), shutil.copy(center.key, home / "before.key"))
    new = Authority(home, "selvedge-ca")
    try:
        center.stop()
        (pki / "ca-extra.crt").write_bytes(new.crt.read_bytes())
        center.start()
        both = center.ca.read_text()
        assert both.count("BEGIN CERTIFICATE") == 2 and new.crt.read_text().strip() in both
        published = lambda: center.api("GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
        wait_for("pods to trust both", lambda: published() == both)
        center.stop()
        (pki / "ca-extra.crt").write_bytes((pki / "ca.crt").read_bytes())
        shutil.copy(new.crt, pki / "ca.crt")
        shutil.copy(new.key, pki / "ca.key")
        center.start()
        openssl("verify", "-CAfile", new.crt, pki / "serving.crt", pki / "admin.crt")
        assert Client(center, cert=before).who()["username"] == "selvedge-admin", "certificates of the old one stay good"
        center.stop()
        (pki / "ca-extra.crt").unlink()
        center.start()
        assert Client(center, cert=before).who() == 401
        center.still_answers()
    finally:
        center.kill()


def test_centers_over_one_etcd_know_each_other(home):
    etcd = Etcd(home)
    options = ["--secrets-key-file", str(home / "shared.key")]
    one = Center(home / "one", "etcd", etcd, args=options)
    two = Center(home / "two", "etcd", etcd, args=options)
    try:
        one.start()
        two.start()
        tools = [Tools(center, home / "home") for center in (one, two)]
        assert Client(two, cert=(one.cert, one.key)).who()["username"] == "selvedge-admin"
        token = tools[0].kubectl("create", "token", "default").strip()
        assert Client(two, token=token).who()["username"] == "system:serviceaccount:default:default"
        assert jwks(one) == jwks(two)
        subprocess.run([binary(), "keys", "rotate", "--data-dir", str(two.data_dir)], check=True, capture_output=True, timeout=60)
        wait_for("the new key at both", lambda: len(jwks(one)) == 2 and jwks(one) == jwks(two), 15, every=0.2)
        assert Client(one, token=tools[1].kubectl("create", "token", "default").strip()).who()["username"]
        found = subprocess.run([shutil.which("strings") or "cat", str(home / "etcd/member/snap/db")], capture_output=True, timeout=60).stdout
        assert b"PRIVATE KEY" not in found, "what opens everything is sealed in the store"
    finally:
        one.kill()
        two.kill()
        etcd.stop()
