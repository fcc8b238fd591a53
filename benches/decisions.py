"""How long a server takes to say whether somebody may do something, without and with many bindings."""
import concurrent.futures
import http.client
import json
import ssl
import statistics
import threading
import time

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
# The user is in 20 of 200 groups, and each group is in one of 200 bindings.
REVIEW = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
    "user": "user-1", "groups": [f"group-{n}" for n in range(20)],
    "resourceAttributes": {"verb": "delete", "group": "apps", "resource": "kind5", "namespace": "default", "name": "x"}}}


class Client:
    def __init__(self, server):
        self.host, self.port, self.tls, self.headers = server.plain()
        self.mine = threading.local()

    def post(self, path, body):
        if not hasattr(self.mine, "connection"):
            self.mine.connection = http.client.HTTPSConnection(self.host, self.port, context=self.tls, timeout=60)
        self.mine.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **self.headers})
        reply = self.mine.connection.getresponse()
        text = reply.read()
        if reply.status not in (201, 409):
            raise SystemExit(f"POST {path}: {reply.status} {text[:300]!r}")
        return json.loads(text)


def review(client, count):
    """Milliseconds, the median."""
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        answer = client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", REVIEW)
        taken.append((time.perf_counter() - begun) * 1e3)
        assert answer["status"]["allowed"] is False, answer
    return statistics.median(taken)


def measure(server, found, quick):
    client, bindings = Client(server), 1000 if quick else 10_000
    found["review"] = review(client, 300)
    for number in range(300):
        rules = [{"apiGroups": ["apps"], "resources": [f"kind{(number * 7 + n) % 90}"], "verbs": ["get", "list", "watch"]} for n in range(40)]
        client.post(f"{RBAC}/clusterroles", {"metadata": {"name": f"bench-{number}"}, "rules": rules})

    def bind(number):
        subjects = [{"kind": "User", "name": f"user-{number % 3000}", "apiGroup": GROUP}, {"kind": "Group", "name": f"group-{number % 200}", "apiGroup": GROUP}]
        client.post(f"{RBAC}/clusterrolebindings", {"metadata": {"name": f"bench-{number}"}, "subjects": subjects, "roleRef": {
            "apiGroup": GROUP, "kind": "ClusterRole", "name": f"bench-{number % 300}"}})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(bind, range(bindings)))
    time.sleep(2)  # whoever decides from watched copies has them now
    found["review_10k"] = review(Client(server), 300)


def trusting(token):
    """For a server whose certificate nobody checks."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls, {"Authorization": f"Bearer {token}"}
