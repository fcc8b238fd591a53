"""Pods on an edge that is nothing but our binary, through kubectl: what runs, what is said of it, and how it ends."""
import contextlib
import json
import os
import re
import signal
import time

import pytest
from center import wait_for
from edge import Edge, fleet

IMAGE = "selvedge.dev/sample/echo"
NODE = "florin"


class Here:
    """kubectl at the edge, and its pods."""

    def __init__(self, edge, tools):
        self.edge, self.tools = edge, tools

    def apply(self, *objects):
        self.tools.kubectl("apply", "-f", "-", stdin=list(objects))

    def pod(self, name):
        # Asked many times: without a program for each.
        return self.edge.api("GET", f"/api/v1/namespaces/default/pods/{name}")

    def uid(self, name):
        return self.pod(name)["metadata"]["uid"]

    def wait(self, name, what, condition, seconds=30):
        def seen():
            pod = self.pod(name)
            return pod if condition(pod) else None

        return wait_for(f"{name} to be {what}", seen, seconds, every=0.1)

    def ready(self, name, seconds=30):
        return self.wait(name, "ready", lambda pod: conditions(pod).get("Ready") == "True", seconds)

    def phase(self, name, phase, seconds=30):
        return self.wait(name, phase, lambda pod: pod["status"].get("phase") == phase, seconds)

    def log(self, name, container="a", attempt=0, uid=None):
        """What a container wrote, line by line without what is before it."""
        path = self.edge.data_dir / "logs" / f"default_{name}_{uid or self.uid(name)}" / container / f"{attempt}.log"
        return "".join(line.split(" ", 3)[3] for line in path.read_text().splitlines(keepends=True))

    def events(self, name):
        found = self.edge.api("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}")["items"]
        return [(event["reason"], event["message"]) for event in found]


def conditions(pod):
    return {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}


def status(pod, name="a"):
    lists = ("containerStatuses", "initContainerStatuses")
    return next(c for field in lists for c in pod["status"].get(field, []) if c["name"] == name)


def shell(script, name="a", **more):
    return {"name": name, "image": IMAGE, "command": ["sh", "-c", script], **more}


def pod(name, *containers, init=(), metadata=None, **spec):
    spec = {"nodeName": NODE, "containers": list(containers), "terminationGracePeriodSeconds": 5, **spec}
    if init:
        spec["initContainers"] = list(init)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **(metadata or {})}, "spec": spec}


@contextlib.contextmanager
def running(base, as_seen=Here):
    """An edge that runs pods, and how a test sees it."""
    with fleet(directory=base, workspace=None) as (center,):
        edge = Edge(center, base / NODE, NODE, args=("--runtime", "process"))
        try:
            edge.start()
            tools = edge.tools(base / "home")
            wait_for("the node", lambda: NODE in tools.kubectl("get", "nodes"), 30)
            wait_for("the account", lambda: tools.kubectl("get", "serviceaccount", "default"), 30)
            yield as_seen(edge, tools)
            assert "panicked" not in edge.log_path.read_text(errors="replace")
        finally:
            edge.tools(base / "home").kubectl("delete", "sts,pods", "--all", "--grace-period=1", "--timeout=20s", code=None)
            edge.end_containers()
            edge.kill()


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    with running(tmp_path_factory.mktemp("pods")) as here:
        # Needs its time, so it begins at once.
        here.apply(pod("loop", shell("echo again; exit 1", terminationMessagePolicy="FallbackToLogsOnError")))
        yield here


def test_a_node_is_there_and_ready(here):
    node = here.tools.json("get", "node", NODE)
    ready = {c["type"]: (c["status"], c["reason"]) for c in node["status"]["conditions"]}
    assert ready["Ready"] == ("True", "KubeletReady")
    assert ready["MemoryPressure"] == ("False", "KubeletHasSufficientMemory")
    for field in ("capacity", "allocatable"):
        assert set(node["status"][field]) >= {"cpu", "memory", "pods", "ephemeral-storage"}
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NODE
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("process://")
    lease = here.tools.json("get", "lease", NODE, "-n", "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == NODE and lease["metadata"]["ownerReferences"][0]["kind"] == "Node"


def test_a_pod_runs_and_is_reported_as_by_a_kubelet(here):
    here.apply(pod("plain", shell("echo up; sleep 1000", ports=[{"containerPort": 8080}],
                                  resources={"requests": {"cpu": "10m", "memory": "8Mi"}})))
    found = here.ready("plain")
    assert found["status"]["phase"] == "Running"
    assert conditions(found) == dict.fromkeys(
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"], "True")
    assert all(c["observedGeneration"] == found["metadata"]["generation"] for c in found["status"]["conditions"]
               if c["type"] != "PodScheduled")
    container = status(found)
    assert container["ready"] and container["started"] and container["restartCount"] == 0
    assert container["containerID"].startswith("process://") and "startedAt" in container["state"]["running"]
    assert found["status"]["qosClass"] == "Burstable"
    assert found["status"]["podIP"] == found["status"]["podIPs"][0]["ip"] and found["status"]["hostIP"]
    assert found["status"]["startTime"] and found["status"]["observedGeneration"] == 1
    wait_for("its events", lambda: {"Pulled", "Created", "Started"} <= {reason for reason, _ in here.events("plain")})
    assert "1/1" in here.tools.kubectl("get", "pod", "plain")


def test_what_ends_is_restarted_as_its_policy_says(here):
    here.apply(pod("once", shell("echo done"), restartPolicy="Never"),
               pod("broken", shell("printf why > ${SELVEDGE_ROOT}/dev/termination-log; exit 3"), restartPolicy="Never"),
               pod("second", shell("test -e $SELVEDGE_ROOT/work/x && exit 0; touch $SELVEDGE_ROOT/work/x; exit 1",
                                   volumeMounts=[{"name": "work", "mountPath": "/work"}]),
                   restartPolicy="OnFailure", volumes=[{"name": "work", "emptyDir": {}}]))
    assert status(here.phase("once", "Succeeded"))["state"]["terminated"]["reason"] == "Completed"
    ended = status(here.phase("broken", "Failed"))["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "why")
    found = here.phase("second", "Succeeded")
    assert status(found)["restartCount"] == 1 and status(found)["lastState"]["terminated"]["exitCode"] == 1
    waits = lambda pod: status(pod)["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"
    found = here.wait("loop", "waiting", lambda pod: waits(pod))
    assert status(found)["restartCount"] >= 1 and found["status"]["phase"] == "Running"
    assert status(found)["lastState"]["terminated"]["message"] == "again\n"
    assert re.match(r"back-off [124]0s restarting failed container=a pod=loop_default\(", status(found)["state"]["waiting"]["message"])
    assert "loop" in here.tools.kubectl("get", "pods")
    wait_for("an Event", lambda: any(reason == "BackOff" for reason, _ in here.events("loop")))


def test_init_containers_and_sidecars_have_an_order(here):
    step = "echo $(date +%s%N) >> $SELVEDGE_ROOT/work/NAME"
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    say = lambda name, more="": shell(step.replace("NAME", name) + more, name=name, **mount)
    term = "; trap 'date +%s%N >> $SELVEDGE_ROOT/work/NAME-end; exit 0' TERM; while :; do sleep 0.1; done"
    side = {**say("side", term.replace("NAME", "side")), "restartPolicy": "Always"}
    here.apply(pod("order", say("a", term.replace("NAME", "a")), init=[say("first"), side, say("last")],
                   volumes=[{"name": "work", "hostPath": {"path": str(here.edge.data_dir / "order"), "type": "DirectoryOrCreate"}}]))
    found = here.ready("order")
    assert [c["name"] for c in found["status"]["initContainerStatuses"]] == ["first", "side", "last"]
    assert status(found, "first")["state"]["terminated"]["reason"] == "Completed" and status(found, "side")["started"]
    at = lambda name: int((here.edge.data_dir / "order" / name).read_text().split()[0])
    # A container is ready as soon as it runs, which may be before it has written anything.
    wait_for("its first words", lambda: at("a"), 10)
    assert at("first") < at("side") < at("last") < at("a")
    here.tools.kubectl("delete", "pod", "order", "--timeout=30s")
    assert at("a-end") <= at("side-end")


def test_values_come_from_everywhere(here):
    script = ("echo name=$NAME ip=$IP cpu=$CPU color=$COLOR password=$PASSWORD P_size=$P_size both=$BOTH arg=$0 "
              "kubernetes=$KUBERNETES_SERVICE_HOST; sleep 1000")
    env = [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
           {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
           {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
           {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
           {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "password", "key": "password"}}},
           {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "nowhere", "key": "x", "optional": True}}},
           {"name": "BOTH", "value": "$(NAME)-$(COLOR)-$(NOWHERE)-$$(NAME)"}]
    here.apply(pod("values", shell(script, args=["$(NAME)"], env=env, envFrom=[{"prefix": "P_", "configMapRef": {"name": "settings"}}],
                                   resources={"limits": {"cpu": "100m"}})))
    reason = lambda pod: status(pod)["state"].get("waiting", {}).get("reason")
    found = here.wait("values", "waiting", lambda pod: reason(pod) == "CreateContainerConfigError")
    assert status(found)["state"]["waiting"]["message"] == 'configmap "settings" not found'
    here.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}, "stringData": {"password": "hunter"}},
               {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"color": "red", "size": "L"}})
    found = here.ready("values", 15)
    line = wait_for("a line", lambda: here.log("values"))
    service = here.tools.json("get", "service", "kubernetes")["spec"]["clusterIP"]
    assert line == (f"name=values ip={found['status']['podIP']} cpu=100 color=red password=hunter P_size=L "
                    f"both=values-red-$(NOWHERE)-$(NAME) arg=values kubernetes={service}\n")


def test_volumes_are_filled_and_follow(here):
    here.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"greeting": "hello", "other": "x"}},
               {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"key": "secret"}})
    volumes = [{"name": "config", "configMap": {"name": "files"}},
               {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
               {"name": "about", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]
    mounts = [{"name": "config", "mountPath": "/etc/app"}, {"name": "keys", "mountPath": "/keys"}, {"name": "about", "mountPath": "/about"}]
    script = "cd $SELVEDGE_ROOT/; while :; do echo $(cat etc/app/greeting) $(cat keys/key) $(cat about/labels); sleep 0.2; done"
    here.apply(pod("volumes", shell(script, volumeMounts=mounts), volumes=volumes, metadata={"labels": {"tier": "one"}}))
    here.ready("volumes")
    last = lambda: here.log("volumes").splitlines()[-1]
    wait_for("the first", lambda: last() == 'hello secret tier="one"')
    here.tools.kubectl("patch", "configmap", "files", "-p", json.dumps({"data": {"greeting": "good day"}}))
    here.tools.kubectl("label", "pod", "volumes", "tier=two", "--overwrite")
    wait_for("the second", lambda: last() == 'good day secret tier="two"', 10)
    # The token that every pod has says who it is, and the API takes it.
    dir = here.edge.data_dir / "pods" / here.uid("volumes") / "volumes"
    account = next(dir.glob("kube-api-access-*"))
    assert (account / "namespace").read_text() == "default" and "CERTIFICATE" in (account / "ca.crt").read_text()
    token = (account / "token").read_text()
    me = here.tools.json("auth", "whoami", "--token", token, "--server", here.edge.url, "--insecure-skip-tls-verify", env={"KUBECONFIG": "/dev/null"})
    assert me["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    assert (dir / "config" / "..data").is_symlink() and (dir / "config" / "greeting").is_symlink()


def test_a_pod_has_names_of_its_own(here):
    own = {"nameservers": ["192.0.2.1"], "searches": ["shop.example"], "options": [{"name": "ndots", "value": "2"}]}
    many = {"searches": [f"x{n}.example" for n in range(30)]}
    here.apply(pod("named", shell("echo $SELVEDGE_DNS; sleep 1000"), subdomain="web",
                   hostAliases=[{"ip": "192.0.2.7", "hostnames": ["db", "db.example"]}]),
               pod("alone", shell("sleep 1000"), dnsPolicy="None", dnsConfig=own),
               pod("crowded", shell("sleep 1000"), dnsConfig=many))
    files = {name: here.edge.data_dir / "pods" / here.ready(name)["metadata"]["uid"] for name in ("named", "alone", "crowded")}
    hosts = (files["named"] / "etc" / "hosts").read_text()
    address = here.pod("named")["status"]["podIP"]
    assert hosts.startswith(f"# Kubernetes-managed hosts file.\n{address}\tnamed.web.default.svc.cluster.local\tnamed\n")
    assert hosts.endswith("\n192.0.2.7\tdb\tdb.example\n")
    assert (files["alone"] / "etc" / "resolv.conf").read_text() == "search shop.example\nnameserver 192.0.2.1\noptions ndots:2\n"
    dns = wait_for("its line", lambda: here.log("named").strip(), 10)
    resolv = files["named"] / "etc" / "resolv.conf"
    if dns.endswith(":53"):
        text = resolv.read_text()
        assert text.startswith("search default.svc.cluster.local svc.cluster.local cluster.local")
        assert f"\nnameserver {dns.split(':')[0]}\n" in text and text.endswith("\noptions ndots:5\n")
        said = wait_for("the warning", lambda: [m for r, m in here.events("crowded") if r == "DNSConfigForming"], 10)
        assert said[0].startswith("Search Line limits were exceeded, some search paths have been omitted")
    else:
        assert not resolv.exists()
    # Whoever it runs as has last words.
    assert (files["named"] / "containers" / "a" / "0.message").stat().st_mode & 0o777 == 0o666


def test_who_may_not_be_root_and_wants_to_waits(here):
    here.apply(pod("rooted", shell("sleep 1000", securityContext={"runAsNonRoot": True}), securityContext={"runAsUser": 0}))
    waiting = lambda pod: status(pod)["state"].get("waiting", {}) if pod["status"].get("containerStatuses") else {}
    found = here.wait("rooted", "refused", lambda pod: waiting(pod).get("reason") == "CreateContainerConfigError")
    said = f"container's runAsUser breaks non-root policy (pod: \"rooted_default({found['metadata']['uid']})\", container: a)"
    assert waiting(found)["message"] == said
    here.tools.kubectl("delete", "pod", "rooted", "--grace-period=1", "--timeout=30s")


def test_somebody_looks_into_a_pod(here):
    here.apply(pod("watched", shell("sleep 1000")))
    here.ready("watched")
    here.tools.kubectl("debug", "watched", "--image", IMAGE, "-c", "looker", "--", "sh", "-c", "echo looked")
    found = here.wait("watched", "looked at", lambda found: any(
        "terminated" in c["state"] for c in found["status"].get("ephemeralContainerStatuses", [])))
    assert found["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert conditions(found)["Ready"] == "True" and here.tools.kubectl("logs", "watched", "-c", "looker") == "looked\n"
    here.tools.kubectl("delete", "pod", "watched", "--grace-period=1", "--wait=false")


def test_what_cannot_be_had_is_said(here):
    here.apply(pod("claims", shell("sleep 1000"), volumes=[{"name": "disk", "persistentVolumeClaim": {"claimName": "none"}}]),
               pod("remote", shell("sleep 1000"), volumes=[{"name": "disk", "nfs": {"server": "s", "path": "/"}}]),
               pod("foreign", {"name": "a", "image": "redis:7"}),
               pod("large", shell("sleep 1000", resources={"requests": {"cpu": "1000"}})),
               pod("elsewhere", shell("sleep 1000"), nodeSelector={"disk": "ssd"}))
    waiting = lambda name: status(here.pod(name))["state"]["waiting"]
    wait_for("a message", lambda: 'persistentvolumeclaims "none" not found' in waiting("claims").get("message", ""))
    wait_for("a message", lambda: "kind nfs are not supported" in waiting("remote").get("message", ""))
    assert waiting("claims")["reason"] == waiting("remote")["reason"] == "ContainerCreating"
    assert any(reason == "FailedMount" for reason, _ in wait_for("events", lambda: here.events("claims")))
    wait_for("a wait", lambda: waiting("foreign")["reason"] == "ImagePullBackOff")
    assert "--image" in waiting("foreign")["message"] and here.pod("foreign")["status"]["phase"] == "Pending"
    for name, reason in (("large", "OutOfcpu"), ("elsewhere", "NodeAffinity")):
        found = here.phase(name, "Failed")
        assert found["status"]["reason"] == reason and found["status"]["message"].startswith("Pod was rejected: ")
    here.tools.kubectl("delete", "pod", "claims", "remote", "foreign", "large", "elsewhere", "--timeout=20s")


def test_what_cannot_be_started_has_failed(here):
    wrong = {"name": "a", "image": IMAGE, "command": ["/no/such/program"]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "wrong"},
           "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [wrong]}}}}
    here.apply(pod("wrong", wrong, restartPolicy="Never"), pod("again", wrong), job,
               pod("never", {"name": "a", "image": "redis:7", "imagePullPolicy": "Never"}))
    ended = status(here.phase("wrong", "Failed"))["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128) and "/no/such/program" in ended["message"]
    found = status(here.wait("again", "tried again", lambda pod: status(pod)["restartCount"] > 0))
    assert found["lastState"]["terminated"]["reason"] == "StartError", found
    here.tools.kubectl("wait", "job/wrong", "--for=condition=Failed", "--timeout=30s")
    waiting = here.wait("never", "refused", lambda pod: status(pod)["state"]["waiting"]["reason"] == "ErrImageNeverPull")
    assert status(waiting)["state"]["waiting"]["message"] == 'Container image "redis:7" is not present with pull policy of Never'
    here.tools.kubectl("delete", "job/wrong", "pod/wrong", "pod/again", "pod/never", "--timeout=20s")


def test_one_end_is_a_new_beginning_for_all(here):
    rule = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
    script = "test -e $SELVEDGE_ROOT/work/x && sleep 1000; touch $SELVEDGE_ROOT/work/x; exit 42"
    work = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    here.apply(pod("anew", shell(script, restartPolicy="Never", restartPolicyRules=rule, **work), shell("sleep 1000", "b"),
                   init=[shell("echo first", "i")], restartPolicy="Never", volumes=[{"name": "work", "emptyDir": {}}]))
    found = here.wait("anew", "there again", lambda pod: conditions(pod).get("Ready") == "True" and status(pod)["restartCount"] == 1)
    assert [status(found, name)["restartCount"] for name in ("i", "a", "b")] == [1, 1, 1]
    assert status(found)["lastState"]["terminated"]["exitCode"] == 42 and conditions(found)["AllContainersRestarting"] == "False"
    here.tools.kubectl("delete", "pod", "anew", "--grace-period=1", "--wait=false")


def test_probes_and_hooks(here):
    work = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    check = lambda file: {"exec": {"command": ["sh", "-c", f"test -e $SELVEDGE_ROOT/work/{file}"]}, "periodSeconds": 1}
    hooks = {"postStart": {"exec": {"command": ["sh", "-c", "touch $SELVEDGE_ROOT/work/hooked"]}},
             "preStop": {"exec": {"command": ["sh", "-c", "touch $SELVEDGE_ROOT/work/stopped"]}}}
    dir = here.edge.data_dir / "probes"
    here.apply(pod("probed", shell("sleep 1000", lifecycle=hooks, startupProbe={**check("started"), "failureThreshold": 100},
                                   readinessProbe=check("ready"), livenessProbe={**check("alive"), "failureThreshold": 1}, **work),
                   volumes=[{"name": "work", "hostPath": {"path": str(dir), "type": "DirectoryOrCreate"}}], terminationGracePeriodSeconds=1),
               pod("web", {"name": "a", "image": "selvedge.dev/sample/web", "ports": [{"name": "web", "containerPort": 8080}],
                           "readinessProbe": {"httpGet": {"path": "/", "port": "web"}}, "livenessProbe": {"tcpSocket": {"port": 8080}}}),
               # A probe that cannot be asked at all says nothing of its container.
               pod("unasked", shell("sleep 1000", env=[{"name": "ROOT", "value": "/"}],
                                    readinessProbe={"exec": {"command": ["test", "-d", "$(ROOT)"]}, "periodSeconds": 1},
                                    livenessProbe={"exec": {"command": ["no-such-program"]}, "periodSeconds": 1, "failureThreshold": 1})))
    found = here.wait("probed", "running", lambda pod: "running" in status(pod)["state"])
    assert (dir / "hooked").exists() and not status(found)["started"]
    (dir / "alive").touch()
    (dir / "started").touch()
    here.wait("probed", "started", lambda pod: status(pod)["started"])
    assert conditions(here.pod("probed"))["Ready"] == "False"
    (dir / "ready").touch()
    here.ready("probed")
    (dir / "ready").unlink()
    here.wait("probed", "unready", lambda pod: conditions(pod)["Ready"] == "False")
    assert ("Unhealthy" in [reason for reason, _ in here.events("probed")])
    (dir / "alive").unlink()
    here.wait("probed", "restarted", lambda pod: status(pod)["restartCount"] >= 1)
    assert (dir / "stopped").exists()
    here.ready("web")
    assert status(here.ready("unasked"))["restartCount"] == 0
    said = [message for reason, message in here.events("unasked") if reason == "Unhealthy"]
    assert said and said[0].startswith("Liveness probe errored and resulted in unknown state: "), said


def test_a_pod_has_its_grace_and_no_more(here):
    here.apply(pod("polite", shell("trap 'sleep 0.5; echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")),
               pod("stubborn", shell("trap '' TERM; echo up; while :; do sleep 0.1; done"), terminationGracePeriodSeconds=2))
    for name in ("polite", "stubborn"):
        here.ready(name)
        wait_for("it to listen", lambda: here.log(name))
    uid = here.uid("polite")
    here.tools.kubectl("delete", "pod", "polite", "--timeout=20s")
    assert here.log("polite", uid=uid) == "up\nbye\n", "its log outlives it"
    begun = time.monotonic()
    here.tools.kubectl("delete", "pod", "stubborn", "--timeout=30s")
    assert 1.5 < time.monotonic() - begun < 20
    assert not (here.edge.data_dir / "pods" / uid).exists()


def test_a_pod_has_its_time(here):
    here.apply(pod("late", shell("sleep 1000"), activeDeadlineSeconds=2, terminationGracePeriodSeconds=1))
    found = here.phase("late", "Failed")
    assert found["status"]["reason"] == "DeadlineExceeded" and "terminated" in status(found)["state"]


def test_an_agent_that_is_killed_finds_its_pods_again(here):
    here.apply(pod("steady", shell("echo $$$$; sleep 1000")), pod("ends", shell("sleep 2; exit 4"), restartPolicy="Never"),
               pod("forgotten", shell("echo $$$$; while :; do sleep 0.1; done")))
    before = here.ready("steady")
    here.ready("ends")
    here.ready("forgotten")
    process = int(wait_for("its number", lambda: here.log("steady")))
    here.edge.kill()
    time.sleep(2.5)
    os.kill(process, 0)
    here.edge.start()
    found = here.phase("ends", "Failed")
    assert status(found)["state"]["terminated"]["exitCode"] == 4
    after = here.ready("steady")
    assert status(after)["restartCount"] == 0
    assert status(after)["containerID"] == status(before)["containerID"]
    ready = lambda pod: next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")
    assert ready(after)["lastTransitionTime"] == ready(before)["lastTransitionTime"]
    os.kill(process, 0)
    # And one that is killed is started again.
    os.kill(process, signal.SIGKILL)
    here.wait("steady", "restarted", lambda pod: status(pod)["restartCount"] == 1)
    assert status(here.ready("steady"))["lastState"]["terminated"]["exitCode"] == 137
    assert status(here.pod("loop"))["restartCount"] >= 2, "it is tried again and again"
    orphan = int(here.log("forgotten"))
    here.tools.kubectl("delete", "pod", "forgotten", "--force", "--grace-period=0")
    wait_for("it to end", lambda: not os.path.exists(f"/proc/{orphan}"), 30)
