"""Who is who: certificates, tokens, proxies, nodes; how identities come, are renewed and end."""
import base64
import contextlib
import datetime
import http.client
import json
import re
import ssl
import subprocess
import time

import pytest

from center import ROOT, Center, Tools, binary, wait_for

TOKENS = 'jane-secret,jane,u-1,"devs,ops"\nbob-secret,bob,u-2\n'
CSR = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def openssl(*args, stdin=None):
    return subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, input=stdin, timeout=60).stdout


class Authority:
    """A certificate authority of somebody's own."""

    def __init__(self, home, name):
        self.home, self.name = home, name
        self.crt, self.key = home / f"{name}.crt", home / f"{name}.key"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key,
                "-out", self.crt, "-days", 4000, "-subj", f"/CN={name}")

    def client(self, subject, days=1):
        return signed(self.home, self.crt, self.key, subject, days)


def key_and_request(home, subject, names=()):
    base = home / ("k" + str(time.monotonic_ns()))
    extra = ["-addext", "subjectAltName=" + ",".join(names)] if names else []
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{base}.key", "-out",
            f"{base}.csr", "-subj", subject, *extra)
    return base


def signed(home, ca, ca_key, subject, days=1):
    base = key_and_request(home, subject)
    (home / "client.ext").write_text("extendedKeyUsage=clientAuth\n")
    openssl("x509", "-req", "-in", f"{base}.csr", "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-out", f"{base}.crt",
            "-days", days, "-extfile", home / "client.ext")
    return f"{base}.crt", f"{base}.key"


class Client:
    """Requests with exactly these credentials."""

    def __init__(self, center, cert=None, token=None, headers=()):
        self.center, self.cert, self.headers = center, cert, dict(headers)
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def request(self, method, path, body=None, headers=()):
        tls = ssl.create_default_context(cafile=str(self.center.ca))
        if self.cert:
            tls.load_cert_chain(*self.cert)
        conn = http.client.HTTPSConnection(self.center.host, self.center.port, context=tls, timeout=20)
        with contextlib.closing(conn):
            send = {"Accept": "application/json", "Content-Type": "application/json", **self.headers, **dict(headers)}
            conn.request(method, path, None if body is None else json.dumps(body), send)
            reply = conn.getresponse()
            raw = reply.read()
            try:
                return reply.status, json.loads(raw)
            except ValueError:
                return reply.status, {"message": raw.decode()}

    def code(self, method, path, body=None):
        return self.request(method, path, body)[0]

    def who(self, headers=()):
        """The user, or the status code of the refusal."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        status, reply = self.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, headers)
        return reply["status"]["userInfo"] if status == 201 else status


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("identity")


@pytest.fixture(scope="module")
def proxies(home):
    return Authority(home, "proxies")


@pytest.fixture(scope="module")
def here(home, proxies):
    (home / "tokens.csv").write_text(TOKENS)
    center = Center(home / "data", args=["--token-auth-file", str(home / "tokens.csv"), "--requestheader-client-ca-file",
                                         str(proxies.crt), "--requestheader-allowed-names", "front"])
    yield center.start()
    log = center.log_path.read_text(errors="replace")
    center.kill()
    assert "panicked" not in log
    for secret in ("jane-secret", "0123456789abcdef"):
        assert secret not in log


@pytest.fixture(scope="module")
def tools(here, home):
    return Tools(here, home / "home")


def make(center, path, **obj):
    return center.api("POST", path, obj)


def bootstrap_token(center, identifier, **data):
    entries = {"token-id": identifier, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", **data}
    make(center, "/api/v1/namespaces/kube-system/secrets", apiVersion="v1", kind="Secret", type="bootstrap.kubernetes.io/token",
         metadata={"name": f"bootstrap-token-{identifier}"}, stringData=entries)
    return f"{identifier}.0123456789abcdef"


def csr(client, home, name, subject, signer, usages=("client auth", "digital signature"), names=(), **spec):
    base = key_and_request(home, subject, names)
    request = base64.b64encode(open(f"{base}.csr", "rb").read()).decode()
    body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"signerName": signer, "request": request, "usages": list(usages), **spec}}
    return base, client.request("POST", CSR, body)


def certificate(center, base, name):
    def issued():
        text = center.api("GET", f"{CSR}/{name}")["status"].get("certificate")
        return text and base64.b64decode(text)
    open(f"{base}.crt", "wb").write(wait_for(f"the certificate {name}", issued, 10))
    return f"{base}.crt", f"{base}.key"


def test_fixed_tokens(here):
    jane = Client(here, token="jane-secret").who()
    assert (jane["username"], jane["uid"], jane["groups"]) == ("jane", "u-1", ["devs", "ops", "system:authenticated"])
    assert Client(here, token="bob-secret").who()["username"] == "bob"
    assert Client(here, token="jane").who() == 401
    assert Client(here, token="jane-secret").code("GET", "/api/v1/pods") == 403


@pytest.mark.parametrize("header, expected", [
    ("bearer jane-secret", "jane"), ("BEARER jane-secret", "jane"), (" Bearer jane-secret ", "jane"),
    ("Bearer jane-secret more", "jane"),
    ("Bearer  jane-secret", 403), ("Bearer", 403), ("Basic amFuZTp4", 403), ("jane-secret", 403), ("Bearer\tjane-secret", 403),
    ("Bearer x", 401), ("Bearer a.b.c", 401), ("Bearer " + "x" * 20000, 401), ("Bearer eyJhbGciOiJub25lIn0.e30.", 401),
])
def test_odd_authorization_headers(here, header, expected):
    got = Client(here, headers={"Authorization": header}).who()
    assert (got["username"] if isinstance(got, dict) else got) == expected


def test_a_wrong_token_file_is_named_by_line(home):
    file = home / "wrong.csv"
    file.write_text("fine-secret,jane,u\nother-secret,bob\n")
    done = subprocess.run([binary(), "center", "--data-dir", str(home / "wrong"), "--listen", "127.0.0.1:0",
                           "--token-auth-file", str(file)], capture_output=True, text=True, timeout=30)
    assert done.returncode != 0 and "wrong.csv: line 2 must have at least 3 columns" in done.stderr
    assert "secret" not in done.stderr


def test_anonymous(here, home):
    nobody = Client(here)
    for path, code in [("/healthz", 200), ("/livez", 200), ("/readyz", 200), ("/version", 200), ("/api", 403), ("/metrics", 403)]:
        assert nobody.code("GET", path) == code, path
    status, reply = nobody.request("GET", "/api/v1/namespaces/default/pods")
    assert status == 403 and 'User "system:anonymous" cannot list resource "pods"' in reply["message"]
    strict = Center(home / "strict", args=["--anonymous-auth=false"]).start()
    try:
        assert {Client(strict).code("GET", p) for p in ("/healthz", "/version", "/api/v1/pods")} == {401}
        strict.still_answers()
    finally:
        strict.kill()


def test_bootstrap_tokens(here):
    good = bootstrap_token(here, "abcdef", **{"auth-extra-groups": "system:bootstrappers:edge"})
    user = Client(here, token=good).who()
    assert user["username"] == "system:bootstrap:abcdef"
    assert user["groups"] == ["system:bootstrappers", "system:bootstrappers:edge", "system:authenticated"]
    assert Client(here, token="abcdef.0123456789abcdee").who() == 401
    assert Client(here, token=bootstrap_token(here, "nouse1", **{"usage-bootstrap-authentication": "false"})).who() == 401
    old = (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert Client(here, token=bootstrap_token(here, "ended1", expiration=old)).who() == 401
    gone = lambda: here.request("GET", "/api/v1/namespaces/kube-system/secrets/bootstrap-token-ended1")[0] == 404
    wait_for("the ended token to be cleaned up", gone, 15, every=0.2)
    assert Client(here, token=good).who()["username"] == "system:bootstrap:abcdef"
    here.api("DELETE", "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef")
    assert Client(here, token=good).who() == 401


def test_cluster_info_is_signed(here):
    bootstrap_token(here, "signer", **{"usage-bootstrap-signing": "true"})
    read = lambda: here.api("GET", "/api/v1/namespaces/kube-public/configmaps/cluster-info")["data"]
    data = wait_for("the signature", lambda: "jws-kubeconfig-signer" in read() and read(), 15, every=0.1)
    assert here.url in data["kubeconfig"]
    header, payload, signature = data["jws-kubeconfig-signer"].split(".")
    plain = lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")
    signed_text = f"{header}.{plain(data['kubeconfig'].encode())}".encode()
    mac = openssl("dgst", "-sha256", "-hmac", "0123456789abcdef", "-binary", stdin=signed_text)
    assert (payload, signature) == ("", plain(mac))


REMOTE = {"X-Remote-User": "mallory", "X-Remote-Group": "system:masters", "X-Remote-Extra-Acme.Com%2Fa": "b", "X-Remote-Uid": "u9"}


def test_headers_of_proxies_count_only_with_their_certificate(here, home, proxies):
    assert Client(here, headers=REMOTE).who() == 403, "anonymous stays anonymous"
    assert Client(here, token="jane-secret", headers=REMOTE).who()["username"] == "jane"
    assert Client(here, cert=(here.cert, here.key), headers=REMOTE).who()["username"] == "selvedge-admin"
    front = proxies.client("/CN=front")
    user = Client(here, cert=front, headers=REMOTE).who()
    assert (user["username"], user["uid"], user["groups"]) == ("mallory", "u9", ["system:masters", "system:authenticated"])
    assert user["extra"] == {"acme.com/a": ["b"]}
    assert Client(here, cert=front).who() == 401, "a proxy that speaks for nobody"
    assert Client(here, cert=proxies.client("/CN=other"), headers=REMOTE).who() == 401
    ours = signed(home, here.data_dir / "pki/ca.crt", here.data_dir / "pki/ca.key", "/CN=front")
    assert Client(here, cert=ours, headers=REMOTE).who()["username"] == "front", "our own authority makes no proxies"


def test_certificates_that_nobody_vouches_for(here, home):
    stranger = Authority(home, "selvedge-ca").client("/O=system:masters/CN=root")
    assert Client(here, cert=stranger).who() == 401
    assert Client(here, cert=stranger, token="jane-secret").who()["username"] == "jane"
    ended = signed(home, here.data_dir / "pki/ca.crt", here.data_dir / "pki/ca.key", "/CN=late", days=0)
    time.sleep(1.1)
    assert Client(here, cert=ended).who() == 401


def test_bound_tokens_end_with_what_they_are_bound_to(here, tools):
    tools.kubectl("create", "namespace", "bound")
    tools.kubectl("-n", "bound", "create", "serviceaccount", "robot")
    make(here, "/api/v1/nodes", apiVersion="v1", kind="Node", metadata={"name": "n1"})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
           "spec": {"serviceAccountName": "robot", "nodeName": "n1", "containers": [{"name": "c", "image": "x"}]}}
    uid = here.api("POST", "/api/v1/namespaces/bound/pods", pod)["metadata"]["uid"]
    token = tools.kubectl("-n", "bound", "create", "token", "robot", "--bound-object-kind=Pod", "--bound-object-name=p").strip()
    user = Client(here, token=token).who()
    extra = {key.removeprefix("authentication.kubernetes.io/"): value for key, value in user["extra"].items()}
    assert user["username"] == "system:serviceaccount:bound:robot" and extra.pop("credential-id")[0].startswith("JTI=")
    node = extra.pop("node-uid")
    assert extra == {"pod-name": ["p"], "pod-uid": [uid], "node-name": ["n1"]} and node
    remove = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    here.api("DELETE", "/api/v1/namespaces/bound/pods/p", remove)
    assert Client(here, token=token).who() == 401
    here.api("POST", "/api/v1/namespaces/bound/pods", pod)
    assert Client(here, token=token).who() == 401, "a pod of the same name is another one"
    on_node = tools.kubectl("-n", "bound", "create", "token", "robot", "--bound-object-kind=Node", "--bound-object-name=n1").strip()
    assert Client(here, token=on_node).who()["extra"]["authentication.kubernetes.io/node-uid"] == node
    here.api("DELETE", "/api/v1/nodes/n1")
    assert Client(here, token=on_node).who() == 401


def test_token_reviews_look_at_audiences(here, tools):
    tools.kubectl("create", "namespace", "audience")
    tools.kubectl("-n", "audience", "create", "serviceaccount", "robot")
    vault = tools.kubectl("-n", "audience", "create", "token", "robot", "--audience=vault").strip()

    def review(token, *audiences):
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, "audiences": list(audiences)}}
        return here.api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)["status"]
    assert Client(here, token=vault).who() == 401, "the token is not for this server"
    assert review(vault)["error"]
    good = review(vault, "vault", "other")
    assert good["authenticated"] and good["audiences"] == ["vault"] and good["user"]["username"] == "system:serviceaccount:audience:robot"
    assert review("jane-secret")["user"]["username"] == "jane"
    assert not review("jane-secret", "vault").get("authenticated"), "a fixed token is for this server only"
    assert not review("nonsense").get("authenticated")
    long = tools.run(["kubectl", "-n", "audience", "create", "token", "robot", "--duration=17520h"])
    assert "shortened to 31536000 seconds" in long.stderr and Client(here, token=long.stdout.strip()).who()["username"]


def header_of(token):
    part = token.split(".")[0]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def jwks(center):
    return [key["kid"] for key in center.api("GET", "/openid/v1/jwks")["keys"]]


def test_signing_keys_rotate_with_overlap(here, tools):
    issue = lambda: tools.kubectl("-n", "default", "create", "token", "default").strip()
    old, keys = issue(), jwks(here)
    new = subprocess.run([binary(), "keys", "rotate", "--data-dir", str(here.data_dir)], check=True, capture_output=True,
                         text=True, timeout=60).stdout.strip()
    wait_for("the new key", lambda: jwks(here) == [new, *keys], 15, every=0.2)
    assert header_of(issue())["kid"] == new and header_of(old)["kid"] == keys[0]
    for token in (old, issue()):
        assert Client(here, token=token).who()["username"] == "system:serviceaccount:default:default"
    listed = subprocess.run([binary(), "keys", "list", "--data-dir", str(here.data_dir)], check=True, capture_output=True, text=True, timeout=60)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [new, *keys]


def test_tokens_in_secrets(here, tools):
    tools.kubectl("create", "namespace", "legacy")
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
              "metadata": {"name": "robot-token", "annotations": {"kubernetes.io/service-account.name": "robot"}}}
    here.api("POST", "/api/v1/namespaces/legacy/secrets", secret)
    tools.kubectl("-n", "legacy", "create", "serviceaccount", "robot")
    path = "/api/v1/namespaces/legacy/secrets/robot-token"
    data = wait_for("the token", lambda: here.api("GET", path).get("data"), 10)
    assert base64.b64decode(data["namespace"]) == b"legacy" and b"BEGIN CERTIFICATE" in base64.b64decode(data["ca.crt"])
    token = base64.b64decode(data["token"]).decode()
    user = Client(here, token=token).who()
    assert user["username"] == "system:serviceaccount:legacy:robot" and "system:serviceaccounts:legacy" in user["groups"]
    tools.kubectl("-n", "legacy", "delete", "serviceaccount", "robot")
    assert Client(here, token=token).who() == 401
    wait_for("the Secret to go with its account", lambda: here.request("GET", path)[0] == 404, 10)


def test_requests_for_certificates(here, home, tools):
    admin = Client(here, cert=(here.cert, here.key))
    base, (status, _) = csr(admin, home, "alice", "/O=devs/CN=alice", "kubernetes.io/kube-apiserver-client", expirationSeconds=3600)
    assert status == 201
    tools.kubectl("certificate", "approve", "alice")
    cert = certificate(here, base, "alice")
    alice = Client(here, cert=cert).who()
    assert (alice["username"], alice["groups"]) == ("alice", ["devs", "system:authenticated"])
    end = openssl("x509", "-in", cert[0], "-noout", "-enddate").decode().strip().removeprefix("notAfter=")
    left = datetime.datetime.strptime(end, "%b %d %H:%M:%S %Y %Z") - datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    assert 3500 < left.total_seconds() <= 3600
    csr(admin, home, "mallory", "/CN=mallory", "kubernetes.io/kube-apiserver-client")
    tools.kubectl("certificate", "deny", "mallory")
    assert "Denied" in tools.kubectl("get", "csr", "mallory")
    _, (status, reply) = csr(admin, home, "boss", "/O=system:masters/CN=boss", "kubernetes.io/kube-apiserver-client")
    assert status == 403 and "system:masters group is not allowed" in reply["message"]
    jane = Client(here, token="jane-secret")
    _, (status, _) = csr(jane, home, "jane", "/CN=jane", "kubernetes.io/kube-apiserver-client")
    assert status == 403, "not everybody may ask"


@pytest.fixture(scope="module")
def node(here, home, tools):
    """A node that has come with a bootstrap token: its client."""
    token = bootstrap_token(here, "worker", **{"auth-extra-groups": "system:bootstrappers:workers"})
    role = "system:certificates.k8s.io:certificatesigningrequests"
    tools.kubectl("create", "clusterrolebinding", "join", "--clusterrole=system:node-bootstrapper", "--group=system:bootstrappers:workers")
    tools.kubectl("create", "clusterrolebinding", "approve", f"--clusterrole={role}:nodeclient", "--group=system:bootstrappers:workers")
    tools.kubectl("create", "clusterrolebinding", "renew", f"--clusterrole={role}:selfnodeclient", "--group=system:nodes")
    base, (status, reply) = csr(Client(here, token=token), home, "node-a", "/O=system:nodes/CN=system:node:node-a",
                                "kubernetes.io/kube-apiserver-client-kubelet")
    assert status == 201 and reply["spec"]["username"] == "system:bootstrap:worker"
    return Client(here, cert=certificate(here, base, "node-a"))


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": {"kubernetes.io/hostname": "node-a"}}}


def test_a_node_joins_and_does_no_more_than_its_pods_need(here, home, tools, node):
    assert node.who()["username"] == "system:node:node-a"
    assert node.code("POST", "/api/v1/nodes", NODE) == 201
    tools.kubectl("create", "namespace", "work")
    for name in ("used", "other"):
        tools.kubectl("-n", "work", "create", "secret", "generic", name, "--from-literal=a=b")
        tools.kubectl("-n", "work", "create", "configmap", name, "--from-literal=a=b")
        tools.kubectl("-n", "work", "create", "serviceaccount", name)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {
        "nodeName": "node-a", "serviceAccountName": "used", "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "x", "envFrom": [{"secretRef": {"name": "used"}}]}],
        "volumes": [{"name": "v", "configMap": {"name": "used"}}]}}
    work = "/api/v1/namespaces/work"
    uid = here.api("POST", f"{work}/pods", pod)["metadata"]["uid"]
    here.api("POST", f"{work}/pods", {**pod, "metadata": {"name": "elsewhere"}, "spec": {**pod["spec"], "nodeName": "node-b"}})
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-a"}, "spec": {"holderIdentity": "node-a"}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    token = lambda bound=None: {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}
    status = lambda name: {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "status": {"phase": "Running"}}
    labelled = {**NODE, "spec": here.api("GET", "/api/v1/nodes/node-a")["spec"], "metadata": {"name": "node-a", "labels": {"kubernetes.io/hostname": "node-a", "node-restriction.kubernetes.io/x": "y"}}}
    mirror = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "node-a", "controller": True,
         "uid": here.api("GET", "/api/v1/nodes/node-a")["metadata"]["uid"]}]},
        "spec": {"nodeName": "node-a", "containers": [{"name": "c", "image": "x"}]}}
    for method, path, body, code, message in [
        ("GET", f"{work}/secrets/used", None, 200, ""),
        ("GET", f"{work}/secrets/other", None, 403, "no relationship found between node 'node-a' and this object"),
        ("GET", f"{work}/secrets", None, 403, "No Object name found"),
        ("GET", f"{work}/secrets?fieldSelector=metadata.name%3Dused", None, 200, ""),
        ("GET", f"{work}/configmaps/used", None, 200, ""),
        ("GET", f"{work}/configmaps/other", None, 403, "no relationship found"),
        ("GET", f"{work}/pods/p", None, 200, ""),
        ("GET", f"{work}/pods/elsewhere", None, 403, "no relationship found"),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a", None, 200, ""),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-b", None, 403, "can only list/watch pods with spec.nodeName field selector"),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%21%3Dnode-a", None, 403, "can only list/watch pods with spec.nodeName field selector"),
        ("GET", "/api/v1/pods", None, 403, "can only list/watch pods with spec.nodeName field selector"),
        ("GET", "/api/v1/nodes/node-a", None, 200, ""),
        ("GET", "/api/v1/nodes/node-b", None, 403, "node 'node-a' cannot read 'node-b', only its own Node object"),
        ("GET", "/api/v1/services", None, 200, ""),
        ("GET", "/apis/apps/v1/deployments", None, 403, ""),
        ("POST", leases, lease, 201, ""),
        ("POST", leases, {**lease, "metadata": {"name": "node-b"}}, 403, "can only access node lease with the same name as the requesting node"),
        ("POST", "/api/v1/nodes", {**NODE, "metadata": {"name": "node-b"}}, 403, 'node "node-a" is not allowed to modify node "node-b"'),
        ("PUT", "/api/v1/nodes/node-a", labelled, 403, "is not allowed to modify labels: node-restriction.kubernetes.io/x"),
        ("PUT", f"{work}/pods/p/status", {**status("p"), "metadata": {"name": "p", "labels": {"a": "b"}}}, 200, ""),
        ("PUT", f"{work}/pods/p/status", status("p"), 403, 'node "node-a" cannot update labels through pod status'),
        ("PUT", f"{work}/pods/elsewhere/status", status("elsewhere"), 403, 'node "node-a" can only update pod status for pods with spec.nodeName set to itself'),
        ("POST", f"{work}/pods", {**pod, "metadata": {"name": "new"}}, 403, 'pod does not have "kubernetes.io/config.mirror" annotation'),
        ("POST", f"{work}/pods", mirror, 201, ""),
        ("POST", f"{work}/pods", {**mirror, "metadata": {**mirror["metadata"], "name": "m2"}, "spec": {**mirror["spec"],
         "volumes": [{"name": "v", "secret": {"secretName": "other"}}]}}, 403, "a mirror pod may not reference secrets"),
        ("DELETE", f"{work}/pods/elsewhere", None, 403, 'node "node-a" can only delete pods with spec.nodeName set to itself'),
        ("POST", f"{work}/serviceaccounts/used/token", token(bound), 201, ""),
        ("POST", f"{work}/serviceaccounts/used/token", token(), 403, "node requested token not bound to a pod"),
        ("POST", f"{work}/serviceaccounts/other/token", token(bound), 403, "no relationship found"),
        ("DELETE", "/api/v1/nodes/node-a", None, 403, ""),
        ("DELETE", f"{work}/pods/m", None, 200, ""),
    ]:
        got, reply = node.request(method, path, body)
        assert got == code and message in reply.get("message", ""), f"{method} {path}: {got} {reply.get('message')}"
    here.api("DELETE", f"{work}/pods/p")
    assert node.code("GET", f"{work}/secrets/used") == 403, "what a pod needed ends with it"


def test_nodes_ask_only_for_their_own_certificates(here, home, node):
    kubelet, serving = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
    subject = "/O=system:nodes/CN=system:node:{}"
    base, (status, _) = csr(node, home, "node-a-again", subject.format("node-a"), kubelet)
    assert status == 201 and Client(here, cert=certificate(here, base, "node-a-again")).who()["username"] == "system:node:node-a"
    _, (status, reply) = csr(node, home, "node-b", subject.format("node-b"), kubelet)
    assert status == 403 and "can only create a node CSR with CN=system:node:node-a" in reply["message"]
    base, (status, _) = csr(node, home, "node-a-serving", subject.format("node-a"), serving, ("server auth", "digital signature"),
                            ("DNS:node-a",))
    assert status == 201
    # A request that is approved by itself, and made after this one, has been dealt with.
    base_later, (status, _) = csr(node, home, "node-a-later", subject.format("node-a"), kubelet)
    assert status == 201 and certificate(here, base_later, "node-a-later")
    assert not here.api("GET", f"{CSR}/node-a-serving").get("status"), "somebody has to approve names"
    here_tools = Tools(here, home / "home")
    here_tools.kubectl("certificate", "approve", "node-a-serving")
    assert "DNS:node-a" in openssl("x509", "-in", certificate(here, base, "node-a-serving")[0], "-noout", "-text").decode()


def test_edges_have_a_signer_of_their_own(here, home, tools):
    agent = "edge.selvedge.dev/agent"
    targets = "/apis/workload.kcp.io/v1alpha1/synctargets"
    make = lambda name: here.api("POST", targets, {"apiVersion": "workload.kcp.io/v1alpha1", "kind": "SyncTarget", "metadata": {"name": name}})
    subject = "/O=system:edges/CN=system:edge:root:{}"
    failed = lambda name: [c for c in here.api("GET", f"{CSR}/{name}")["status"]["conditions"] if c["type"] == "Failed"]
    uid = make("shop-2")["metadata"]["uid"]
    token = bootstrap_token(here, "shops1", **{"auth-extra-groups": "system:bootstrappers:shops"})
    tools.kubectl("create", "clusterrolebinding", "shops-ask", "--clusterrole=system:node-bootstrapper", "--group=system:bootstrappers:shops")
    newcomer = Client(here, token=token)
    base, (status, _) = csr(newcomer, home, "shop-1", subject.format("shop-1"), agent)
    assert status == 201
    time.sleep(0.3)
    assert not here.api("GET", f"{CSR}/shop-1").get("status"), "nobody has said yet that shops may come by themselves"
    tools.kubectl("certificate", "approve", "shop-1")
    assert "no SyncTarget" in wait_for("the refusal", lambda: failed("shop-1"), 10)[0]["message"]
    role = "system:certificates.k8s.io:certificatesigningrequests:edgeclient"
    tools.kubectl("create", "clusterrolebinding", "shops-come", f"--clusterrole={role}", "--group=system:bootstrappers:shops")
    base, _ = csr(newcomer, home, "shop-2", subject.format("shop-2"), agent)
    shop = Client(here, cert=certificate(here, base, "shop-2"))
    who = shop.who()
    assert (who["username"], who["uid"]) == ("system:edge:root:shop-2", uid) and "system:edges" in who["groups"]
    tools.kubectl("create", "clusterrolebinding", "edges-ask", "--clusterrole=system:node-bootstrapper", "--group=system:edges")
    base, (status, _) = csr(shop, home, "shop-2-again", subject.format("shop-2"), agent)
    assert status == 201 and certificate(here, base, "shop-2-again")
    _, (status, reply) = csr(shop, home, "shop-3", subject.format("shop-3"), agent)
    assert status == 403 and "can only create an edge CSR with CN=system:edge:root:shop-2" in reply["message"]
    # An old certificate gets no new one for a SyncTarget that was made anew.
    here.api("DELETE", f"{targets}/shop-2")
    make("shop-2")
    _, (status, _) = csr(shop, home, "shop-2-stale", subject.format("shop-2"), agent)
    assert status == 401 and shop.who() == 401, "its holder is nobody any more"
    # Nor does one workspace make edges of another.
    csr(newcomer, home, "elsewhere", "/O=system:edges/CN=system:edge:root:org:shop-2", agent)
    assert "not of this workspace" in wait_for("the refusal", lambda: failed("elsewhere"), 10)[0]["message"]
    base, _ = csr(newcomer, home, "odd", "/O=system:masters/CN=system:edge:root:odd", agent)
    tools.kubectl("certificate", "approve", "odd")
    assert "organization is not system:edges" in wait_for("the refusal", lambda: failed("odd"), 10)[0]["message"]


def test_kubectl_asks_who_may(here, tools, node):
    assert "jane" in tools.kubectl("auth", "whoami", "--as=jane", "--as-group=devs", "--as-uid=u7", "-o", "json")
    assert tools.kubectl("auth", "can-i", "list", "pods").strip() == "yes"
    assert tools.kubectl("auth", "can-i", "list", "pods", "--as=jane", code=1).strip().startswith("no")
    listed = tools.kubectl("auth", "can-i", "--list", "--as=jane")
    assert "selfsubjectaccessreviews.authorization.k8s.io" in listed and "/healthz" in listed
    assert "secrets" not in listed

    def may(user, **attributes):
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": {"user": user, "groups": ["system:nodes"], "resourceAttributes": attributes}}
        status, _, raw = here.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        return json.loads(raw)["status"]["allowed"] if status == 201 else json.loads(raw)["message"]
    pods = {"verb": "list", "resource": "pods", "version": "v1"}
    field = lambda name: {"fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": [name]}]}}
    assert may("system:node:x", **pods) is False
    assert may("system:node:x", **pods, **field("x")) is True
    assert may("system:node:x", **pods, **field("y")) is False
    assert may("system:node:x", **pods, fieldSelector={"rawSelector": "spec.nodeName=x"}) is True
    assert "requirements or rawSelector is required" in may("system:node:x", **pods, labelSelector={})
    rules = Client(here, cert=node.cert).request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}})[1]
    assert rules["status"]["incomplete"] and "node authorizer" in rules["status"]["evaluationError"]


def test_a_namespace_is_within_itself(here, tools):
    tools.kubectl("create", "namespace", "own")
    tools.kubectl("-n", "own", "create", "rolebinding", "jane", "--clusterrole=view", "--user=jane")
    jane = Client(here, token="jane-secret")
    assert jane.code("GET", "/api/v1/namespaces/own") == 200
    assert jane.code("GET", "/api/v1/namespaces/default") == 403 and jane.code("GET", "/api/v1/namespaces") == 403
    assert jane.code("DELETE", "/api/v1/namespaces/own") == 403


def test_nodes_of_root_are_nobody_elsewhere(here, tools, node):
    tools.kubectl("create", "-f", "-", stdin={"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "team"}})
    wait_for("the workspace", lambda: tools.json("get", "workspace", "team")["status"]["phase"] == "Ready", 15)
    for path in ("/api/v1/nodes/node-a", "/api/v1/services", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a"):
        assert node.code("GET", f"/clusters/root:team{path}") == 403, path
        assert node.code("GET", path) in (200, 404)


def test_the_page_does_what_it_says(home):
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/reference/identity.md").read_text(), re.M | re.S)
    assert len(blocks) >= 3
    center = Center(home / "page").start()
    try:
        tools = Tools(center, home / "home")
        work = home / "page-work"
        work.mkdir()
        script = "\n".join(blocks).replace(".data/center", str(center.data_dir))
        env = {**tools.env, "PATH": f"{work}:{tools.env['PATH']}"}
        (work / "selvedge").symlink_to(binary())
        done = subprocess.run(["bash", "-exuo", "pipefail", "-c", script], cwd=work, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        for said in ("system:bootstrap:07401b", "system:node:worker-1", "anna", "Approved,Issued"):
            assert said in done.stdout, said
    finally:
        center.kill()
