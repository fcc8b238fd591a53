"""Audit: one JSON line for each stage of a request, by policy, in the shape of audit.k8s.io/v1."""
import json
import os
import re
import subprocess
import threading
import time

import pytest

from center import ROOT, Center, Tools, join, wait_for
from manifests import configmap
from test_faults import refused
from test_overload import tenant

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: None, nonResourceURLs: ["/readyz*", "/livez*"]}
- {level: RequestResponse, resources: [{group: "", resources: [configmaps]}]}
- {level: Metadata, omitStages: [RequestReceived], verbs: [watch]}
- {level: RequestResponse, omitStages: [RequestReceived], resources: [{group: ""}]}
- {level: Metadata, omitStages: [RequestReceived]}
"""


@pytest.fixture
def audited(tmp_path):
    """Starts a center with an audit log; answers it and what reads the log."""
    started = []

    def start(policy=None, *args, log=None):
        log = log or tmp_path / "audit.log"
        flags = ["--audit-log-path", str(log), *args]
        if policy:
            (tmp_path / "policy.yaml").write_text(policy)
            flags += ["--audit-policy-file", str(tmp_path / "policy.yaml")]
        center = Center(tmp_path / "data", args=flags)
        started.append(center)
        center.start()
        center.log = log
        return center

    yield start
    for center in started:
        center.kill()


def events(center, **wanted):
    found = [json.loads(line) for line in center.log.read_text().splitlines()]
    return [e for e in found if all(e.get(k) == v for k, v in wanted.items())]


def one(center, **wanted):
    found = wait_for(f"an event {wanted}", lambda: events(center, **wanted), 5)
    assert len(found) == 1, found
    return found[0]


def test_who_did_what_where_from_where(audited):
    center = audited()
    path, _ = tenant(center, "weavers")
    status, headers, _ = center.request("POST", f"{path}{CONFIGMAPS}", configmap("a", thread="wool"),
                                        headers={"User-Agent": "loom/1.0", "X-Forwarded-For": "203.0.113.7"})
    assert status == 201
    event = one(center, auditID=headers["audit-id"])
    assert (event["kind"], event["apiVersion"], event["level"], event["stage"]) == ("Event", "audit.k8s.io/v1", "Metadata", "ResponseComplete")
    assert event["verb"] == "create" and event["requestURI"] == f"{path}{CONFIGMAPS}" and event["userAgent"] == "loom/1.0"
    assert event["objectRef"] == {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"}
    assert "system:masters" in event["user"]["groups"] and event["sourceIPs"] == ["203.0.113.7", "127.0.0.1"]
    assert event["responseStatus"] == {"metadata": {}, "code": 201}
    assert event["annotations"]["tenancy.kcp.io/workspace"] == "root:weavers"
    assert event["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["stageTimestamp"])
    assert event["requestReceivedTimestamp"] <= event["stageTimestamp"]
    # Without a policy: writes only, no bodies, no heartbeats.
    center.api("GET", CONFIGMAPS)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    center.api("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)
    center.stop()
    assert not any("requestObject" in e or e["verb"] in ("get", "list", "watch") for e in events(center))
    assert not any(e.get("objectRef", {}).get("resource") == "leases" for e in events(center))
    assert center.log.stat().st_mode & 0o077 == 0


def test_bodies_by_policy_and_never_secrets_by_accident(audited, tmp_path):
    center = audited(POLICY)
    tools = Tools(center, tmp_path / "home")
    tools.kubectl("create", "configmap", "a", "--from-literal=thread=wool")
    found = wait_for("two stages", lambda: len(f := events(center, verb="create", level="RequestResponse")) == 2 and f)
    received, complete = found
    assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
    assert received["auditID"] == complete["auditID"] and "responseStatus" not in received
    assert complete["requestObject"]["data"] == complete["responseObject"]["data"] == {"thread": "wool"}
    assert complete["responseObject"]["metadata"]["uid"] and "managedFields" not in complete["responseObject"]["metadata"]
    center.api("PATCH", f"{CONFIGMAPS}/a", {"data": {"thread": "silk"}}, content_type="application/merge-patch+json")
    patched = one(center, verb="patch", stage="ResponseComplete")
    assert patched["requestObject"] == {"data": {"thread": "silk"}} and patched["objectRef"]["name"] == "a"

    tools.kubectl("create", "secret", "generic", "s", "--from-literal=x=the-loom-is-in-the-cellar")
    token = tools.kubectl("create", "token", "default").strip()
    tools.kubectl("get", "secret", "s", "-o", "yaml")
    for resource in ("secrets", "serviceaccounts"):
        seen = [e for e in events(center) if e.get("objectRef", {}).get("resource") == resource]
        assert seen and all(e["level"] == "Metadata" for e in seen), seen
    text = center.log.read_text()
    assert token not in text and "dGhlLWxvb20taXMtaW4tdGhlLWNlbGxhcg" not in text and "the-loom" not in text
    # By name, it is asked for.
    center.stop()
    (tmp_path / "policy.yaml").write_text(POLICY.replace("resources: [configmaps]", "resources: [secrets]"))
    center.start()
    tools.kubectl("get", "secret", "s")
    assert one(center, verb="get", stage="ResponseComplete", level="RequestResponse")["responseObject"]["data"]["x"]


def test_failures_watches_and_other_users(audited, tmp_path):
    center = audited(POLICY)
    status, headers, _ = center.request("GET", f"{CONFIGMAPS}/nothing")
    event = one(center, auditID=headers["audit-id"], stage="ResponseComplete")
    assert event["responseStatus"]["code"] == status == 404 and event["responseStatus"]["reason"] == "NotFound"
    assert "nothing" in event["responseStatus"]["message"]

    status, headers, _ = center.request("GET", "/api/v1/nodes", headers={"Impersonate-User": "alice", "Impersonate-Group": "devs"})
    event = one(center, auditID=headers["audit-id"])
    assert status == 403 and event["annotations"]["authorization.k8s.io/decision"] == "forbid"
    status, headers, _ = center.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                                        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
                                        headers={"Impersonate-User": "alice", "Audit-Id": "mine-1"})
    event = one(center, auditID="mine-1")
    assert headers["audit-id"] == "mine-1" and event["impersonatedUser"]["username"] == "alice"
    assert "RBAC: allowed by" in event["annotations"]["authorization.k8s.io/reason"]

    done = subprocess.run(["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Authorization: Bearer wrong", center.url + CONFIGMAPS],
                          capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        assert done.stdout == "401"
        assert wait_for("the stranger", lambda: [e for e in events(center) if e.get("responseStatus", {}).get("code") == 401])

    center.request("GET", "/api/v1/namespaces?watch=true&timeoutSeconds=1")
    stages = lambda: [e["stage"] for e in events(center, verb="watch", requestURI="/api/v1/namespaces?watch=true&timeoutSeconds=1")]
    wait_for("both stages of the watch", lambda: stages() == ["ResponseStarted", "ResponseComplete"])


def test_files_rotate(audited):
    center = audited(POLICY, "--audit-log-maxsize", "1", "--audit-log-maxbackup", "2")
    for i in range(9):
        center.api("POST", CONFIGMAPS, configmap(f"c{i}", x="y" * 250_000))
    center.stop()
    old = sorted(center.log.parent.glob("audit-*.log"))
    assert len(old) == 2, old
    for file in [*old, center.log]:
        assert file.stat().st_size <= 1 << 20
        assert all(json.loads(line)["kind"] == "Event" for line in file.read_text().splitlines())


def test_a_log_that_hangs_does_not_stop_the_server(audited, tmp_path):
    """The log is a pipe that nobody empties: requests go on, and what could not be written is counted."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    try:
        center = audited(POLICY, "--audit-log-batch-buffer-size", "40", log=pipe)
        begun = time.monotonic()
        done = []

        def write(n):
            for i in range(12):
                done.append(center.request("POST", CONFIGMAPS, configmap(f"c{n}-{i}", x="y" * 3000))[0])

        writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for w in writers:
            w.start()
        for w in writers:
            join(w)
        assert done == [201] * 48 and time.monotonic() - begun < 15
        metrics = center.request("GET", "/metrics", accept="*/*")[2].decode()
        assert int(re.search(r'apiserver_audit_error_total\{plugin="log"\} (\d+)', metrics).group(1)) > 0
        assert center.stop() == 0, "nor does it keep it from ending"
    finally:
        os.close(held)


def test_bad_policies_and_logs_are_refused(tmp_path):
    run = ["--data-dir", tmp_path / "data", "--listen", "127.0.0.1:0", "--audit-log-path", tmp_path / "a.log"]
    (tmp_path / "p.yaml").write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Everything}]\n")
    said = refused(*run, "--audit-policy-file", tmp_path / "p.yaml")
    assert "p.yaml" in said and "Everything" in said, said
    assert "nowhere.yaml" in refused(*run, "--audit-policy-file", tmp_path / "nowhere.yaml")
    (tmp_path / "file").write_text("")
    assert "cannot write the audit log" in refused(*run[:-1], tmp_path / "file" / "a.log")


def test_off_by_default(tmp_path):
    center = Center(tmp_path / "data")
    try:
        center.start()
        assert "audit-id" not in {h.lower() for h in center.request("GET", CONFIGMAPS)[1]}
    finally:
        center.kill()


def test_the_page(tmp_path):
    """The policy and the command in docs/how-to/audit.md, as they stand there."""
    page = (ROOT / "docs/how-to/audit.md").read_text()
    policy, = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    command, = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "policy.yaml").write_text(policy)
    flags = re.search(r"selvedge center (.*)", command).group(1).split()
    center = Center(tmp_path / "data", args=[f.replace("audit", str(tmp_path / "audit")) if f == "audit.log" else f.replace("policy.yaml", str(tmp_path / "policy.yaml")) for f in flags])
    try:
        center.start()
        center.api("POST", CONFIGMAPS, configmap("a"))
        wait_for("a line", lambda: (tmp_path / "audit.log").read_text().count("\n") >= 1)
    finally:
        center.kill()
