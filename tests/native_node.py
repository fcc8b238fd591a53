"""A whole native node against an edge: kubelet, containerd, runc, a CNI plugin, kube-proxy and CoreDNS, with the files of deploy/. Run by
tests/test_user_nodes.py in namespaces of its own (network, mounts, processes), so that nothing of it is left on the machine:

    unshare --net --mount --pid --fork --kill-child --mount-proc python3 native_node.py DIRECTORY bridge|flannel

SELVEDGE_UPSTREAM names a directory with the programs; runc and the CNI plugins are the machine's. Images are made here, of static programs.
"""
import contextlib
import hashlib
import http.client
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import yaml

from center import ROOT, TOOLS, Center, Tools, die_with_parent, wait_for
from edge import Edge, make_workspace

PROGRAMS = pathlib.Path(os.environ.get("SELVEDGE_UPSTREAM", "/nowhere"))
NEEDED = ("kubelet", "kube-proxy", "coredns", "containerd", "ctr", "containerd-shim-runc-v2")
CNI = pathlib.Path("/usr/lib/cni")
BUSYBOX = pathlib.Path("/bin/busybox")
ADDRESS, NODE, SHOP = "192.0.2.1", "florin-1", "root:shop"
DEPLOY = ROOT / "deploy/node"


def missing(network):
    """What is not here of what this needs."""
    programs = [*NEEDED, *(("flanneld", "flannel") if network == "flannel" else ())]
    found = [name for name in programs if not (PROGRAMS / name).exists()]
    found += [str(path) for path in (CNI / "bridge", CNI / "portmap", BUSYBOX) if not path.exists()]
    return found + [name for name in ("runc", "nft", "iptables", "conntrack") if not shutil.which(name)]


def run(*command, check=True, timeout=60, **kw):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout, **kw)
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def image(path, name, entrypoint, files, links=()):
    """An archive that `ctr images import` takes: one layer with static programs."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for directory in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for target, source in files.items():
            entry = tarfile.TarInfo(target)
            entry.size, entry.mode = source.stat().st_size, 0o755
            with open(source, "rb") as file:
                tar.addfile(entry, file)
        for link, target in links:
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    layer = layer.getvalue()
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin"]},
                         "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}).encode()
    named = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{"Config": f"{named}.json", "RepoTags": [name], "Layers": [f"{digest}.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for member, content in ((f"{named}.json", config), (f"{digest}.tar", layer), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


class Node:
    """Everything of one machine, started in order; `off` ends it as a power cut does, and what is in memory is gone."""

    def __init__(self, base, network):
        self.base, self.network, self.processes = base, network, {}
        self.etc, self.lib, self.run = base / "etc", base / "lib", base / "run"
        for directory in (self.etc, self.lib, self.run):
            directory.mkdir(parents=True, exist_ok=True)
        self.link()

    def link(self):
        """The machine's one interface. Nothing answers behind it."""
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "far")
        run("ip", "link", "set", "far", "up")
        run("ip", "address", "add", f"{ADDRESS}/24", "dev", "uplink")
        run("ip", "link", "set", "uplink", "up")
        run("ip", "route", "add", "default", "via", "192.0.2.254", "dev", "uplink")

    def spawn(self, name, *command, env=None):
        with open(self.base / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, preexec_fn=die_with_parent, cwd=self.base,
                env={"PATH": f"{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.base), **(env or {})})

    def put(self, source, target, **replaced):
        """A file of deploy/, with this test's own paths."""
        text = pathlib.Path(source).read_text()
        for old, new in {"/etc/kubernetes": self.etc, **replaced}.items():
            text = text.replace(old, str(new))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    # ---- the programs ----

    def containerd(self):
        config = self.etc / "containerd.toml"
        net = self.etc / "cni"
        self.put(DEPLOY / "containerd.toml", config, **{"/etc/cni/net.d": net, "SystemdCgroup = true": "SystemdCgroup = false"})
        text = config.read_text().replace("'/opt/cni/bin'", f"'{PROGRAMS}'")
        # Where lowering the OOM score is not permitted, as in some containers, the pause container keeps its parent's.
        text += "\n[plugins.'io.containerd.cri.v1.runtime']\nrestrict_oom_score_adj = true\n"
        # Before the first table: keys of the whole file.
        text = text.replace("version = 3", f"version = 3\nroot = '{self.lib}/containerd'\nstate = '{self.run}/containerd'\n", 1)
        config.write_text(text + f"\n[grpc]\naddress = '{self.run}/containerd.sock'\n")
        self.put(DEPLOY / f"10-{self.network}.conflist", net / "10-edge.conflist")
        self.spawn("containerd", PROGRAMS / "containerd", "--config", config)
        wait_for("containerd", lambda: run(*self.ctr, "version"), 60, every=0.2)

    @property
    def ctr(self):
        return [PROGRAMS / "ctr", "--address", self.run / "containerd.sock", "-n", "k8s.io"]

    def images(self):
        shell = [(f"bin/{name}", "busybox") for name in ("sh", "sleep", "wget", "nslookup", "httpd", "cat", "hostname", "mkdir")]
        image(self.base / "pause.tar", "registry.k8s.io/pause:3.10.2", ["/bin/busybox", "sleep", "1000000"], {"bin/busybox": BUSYBOX})
        # bash beside it, with its libraries: it resolves names as programs do, and speaks TCP.
        libraries = re.findall(r"(?:=> )?(/\S+) \(0x", run("ldd", "/bin/bash"))
        files = {"bin/busybox": BUSYBOX, "bin/bash": pathlib.Path("/bin/bash")} | {name.lstrip("/"): pathlib.Path(name) for name in libraries}
        image(self.base / "busybox.tar", "example.com/busybox:1", ["/bin/sh"], files, shell)
        image(self.base / "coredns.tar", "registry.k8s.io/coredns/coredns:v1.13.1", ["/coredns"], {"coredns": PROGRAMS / "coredns"})
        for name in ("pause", "busybox", "coredns"):
            run(*self.ctr, "images", "import", self.base / f"{name}.tar", timeout=180)

    def groups(self, remove=False):
        """A control group of our own, in every hierarchy of the machine."""
        name = f"selvedge-native-{os.stat('/proc/self/ns/net').st_ino}"
        top = pathlib.Path("/sys/fs/cgroup")
        for hierarchy in [top] if (top / "cgroup.controllers").exists() else [d for d in top.iterdir() if d.is_dir() and not d.is_symlink()]:
            with contextlib.suppress(OSError):
                if remove:
                    for directory in sorted((hierarchy / name).rglob("*/"), key=lambda d: -len(str(d))):
                        directory.rmdir()
                    (hierarchy / name).rmdir()
                else:
                    (hierarchy / name).mkdir(exist_ok=True)
        return f"/{name}"

    def kubelet(self):
        config = yaml.safe_load(self.put(ROOT / "deploy/kubelet/config.yaml", self.etc / "kubelet.yaml").read_text())
        # What differs from a machine of its own: where things lie, and no systemd.
        config |= {"containerRuntimeEndpoint": f"unix://{self.run}/containerd.sock", "cgroupRoot": self.groups(), "enforceNodeAllocatable": [],
                   "cgroupDriver": "cgroupfs", "failCgroupV1": False, "localStorageCapacityIsolation": False, "resolvConf": str(self.etc / "resolv.conf"),
                   "shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}
        (self.etc / "resolv.conf").write_text("nameserver 192.0.2.254\n")
        (self.etc / "kubelet.yaml").write_text(yaml.safe_dump(config))
        unit = (DEPLOY / "kubelet.service").read_text().replace("\\\n", "")
        command = re.search(r"^ExecStart=(.*)$", unit, re.M)[1].replace("/etc/kubernetes", str(self.etc)).replace("/var/lib/kubelet", str(self.lib / "kubelet"))
        command = command.replace("/usr/local/bin/kubelet", str(PROGRAMS / "kubelet"))
        self.spawn("kubelet", *command.split(), "--hostname-override", NODE, "--node-ip", ADDRESS)

    def kube_proxy(self):
        config = self.put(DEPLOY / "kube-proxy.yaml", self.etc / "kube-proxy.yaml")
        self.spawn("kube-proxy", PROGRAMS / "kube-proxy", "--config", config, "--hostname-override", NODE)

    def flannel(self):
        self.put(DEPLOY / "flannel-net-conf.json", self.etc / "flannel-net-conf.json")
        # It ends when its Node is not there yet, and is started again, as its unit says.
        command = [PROGRAMS / "flanneld", "--kube-subnet-mgr", "--kubeconfig-file", self.etc / "flannel.kubeconfig",
                   "--net-config-path", self.etc / "flannel-net-conf.json", "--iface", "uplink"]
        self.spawn("flanneld", "bash", "-c", 'while :; do "$@"; sleep 1; done', "flanneld", *command, env={"NODE_NAME": NODE})

    def start(self):
        self.containerd()
        if not (self.base / "pause.tar").exists():
            self.images()
        self.kubelet()
        self.kube_proxy()
        if self.network == "flannel":
            self.flannel()

    def off(self):
        """Power off: processes, mounts, interfaces, rules and all that is below /run are gone; the disk stays."""
        mine = {os.getpid(), 1, *(p.pid for p in KEPT)}
        for process in self.processes.values():
            process.kill()
            process.wait(30)
        self.processes = {}
        for directory in pathlib.Path("/proc").glob("[0-9]*"):
            if int(directory.name) not in mine:
                try:
                    os.kill(int(directory.name), signal.SIGKILL)
                except OSError:
                    pass
        time.sleep(0.5)
        for line in reversed(pathlib.Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith((str(self.base), "/run/netns/")):
                run("umount", "-l", line.split()[1], check=False)
        for directory in (self.run, pathlib.Path("/run/flannel"), pathlib.Path("/run/netns"), pathlib.Path("/var/lib/cni")):
            for each in directory.glob("*"):
                with contextlib.suppress(OSError):
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
        run("nft", "flush", "ruleset")
        for name in json.loads(run("ip", "-j", "link")):
            if name["ifname"] not in ("lo",):
                run("ip", "link", "delete", name["ifname"], check=False)
        self.link()


KEPT = []


def private():
    """Directories of this machine that the programs write to, replaced by empty ones in memory that only this process tree sees."""
    run("mount", "--make-rprivate", "/")
    for directory in ("/run", "/var/lib/cni", "/var/lib/kubelet", "/var/log/pods", "/var/log/containers"):
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", directory)


def let_in(node, edge, tools):
    """docs/how-to/kubelet-runtime.md's and docs/how-to/native-node.md's own commands, on the edge."""
    pages = [(ROOT / "docs/how-to/kubelet-runtime.md").read_text(), (ROOT / "docs/how-to/native-node.md").read_text()]
    blocks = [block for page in pages for block in re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)]
    certified = next(block for block in blocks if block.startswith("# kube-proxy"))
    wanted = [block for block in blocks if "bootstrap-token-07401b" in block or "$bootstrap" in block or block.startswith(("# kube-proxy", "# DNS"))]
    if node.network == "flannel":
        wanted += [certified.replace("name=kube-proxy user=system:kube-proxy", "name=flannel user=flannel"),
                   "kubectl apply -f deploy/node/flannel-rbac.yaml"]
    for block in wanted:
        block = block.replace("/etc/kubernetes", str(node.etc)).replace("NODE", NODE)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=ROOT, env={**tools.env, "PATH": f"{TOOLS}:/usr/bin:/bin"},
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"


# ---- the scenario ----

PAGE = "mkdir -p /www; hostname > /www/index.html; exec httpd -f -p 8080 -h /www"


def workload():
    """A Deployment, its Service and a Pod to ask from, as a user declares them at the center."""
    labels = {"app": "web"}
    web = {"name": "web", "image": "example.com/busybox:1", "command": ["sh", "-c", PAGE], "ports": [{"containerPort": 8080}],
           "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}}
    asker = {"name": "sh", "image": "example.com/busybox:1", "command": ["sleep", "100000"]}
    spec = lambda container: {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": {
            "replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec(web)}}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"}, "spec": {
            "type": "NodePort", "selector": labels, "ports": [{"port": 80, "targetPort": 8080, "nodePort": 30080}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "asker", "namespace": "default"}, "spec": {
            "selector": {"matchLabels": {"app": "asker"}}, "template": {"metadata": {"labels": {"app": "asker"}}, "spec": spec(asker)}}},
    ]


def pods(edge, selector, namespace="default"):
    found = edge.api("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]
    return [p for p in found if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", []))
            and not p["metadata"].get("deletionTimestamp")]


def said(what, since):
    print(f"{what}: {time.monotonic() - since:.1f} s", flush=True)


def fetch(where):
    """A page, without any proxy."""
    connection = http.client.HTTPConnection(where, timeout=3)
    connection.request("GET", "/")
    return connection.getresponse().read().decode().strip()


def all_works(node, edge, tools):
    """Pods run and are reached: by their address, by the Service's from the machine and from a Pod, by name, and by the node port."""
    since = time.monotonic()
    wait_for("two web Pods", lambda: len(pods(edge, "app=web")) == 2, 120, every=0.3)
    wait_for("CoreDNS", lambda: pods(edge, "k8s-app=kube-dns", "kube-system"), 120, every=0.3)
    asker = wait_for("asker", lambda: pods(edge, "app=asker"), 120, every=0.3)[0]["metadata"]["name"]
    said("Pods ready", since)
    names = {p["metadata"]["name"] for p in pods(edge, "app=web")}
    address = edge.api("GET", "/api/v1/namespaces/default/services/web")["spec"]["clusterIP"]
    # Until the kubelet has said so, the addresses are those from before a reboot.
    answer = lambda: all(fetch(f"{p['status']['podIP']}:8080") == p["metadata"]["name"] for p in pods(edge, "app=web"))
    wait_for("each Pod at its address", answer, 60, every=0.3)
    for where in (address, f"{ADDRESS}:30080"):
        assert wait_for(f"an answer from {where}", lambda: fetch(where), 30, every=0.3) in names, where
    inside = lambda *command: tools.kubectl("exec", asker, "--", *command, timeout=30).strip()
    assert wait_for("the Service's name", lambda: address in inside("nslookup", "web.default.svc.cluster.local"), 60, every=0.5)
    ask = lambda: inside("bash", "-c", r"exec 3<>/dev/tcp/web/80; printf 'GET / HTTP/1.0\r\n\r\n' >&3; cat <&3").splitlines()[-1]
    answers = {wait_for("the Service from a Pod", ask, 60, every=0.5) for _ in range(4)}
    assert answers and answers <= names, (answers, names)
    assert "BEGIN CERTIFICATE" in inside("cat", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
    said("everything reached", since)


def main(base, network):
    private()
    node = Node(base, network)
    center = Center(base / "center").start()
    make_workspace(center, SHOP)
    edge = Edge(center, base / "florin", "florin", SHOP, args=["--runtime", "kubelet"], listen=ADDRESS).start().wait_connected()
    KEPT.extend([center.process, edge.process])
    tools = Tools(edge, base / "home")
    try:
        let_in(node, edge, tools)
        node.start()
        since = time.monotonic()
        wait_for("the node", lambda: edge.api("GET", f"/api/v1/nodes/{NODE}"), 60, every=0.2)
        if network == "flannel":
            tools.kubectl("patch", "node", NODE, "-p", '{"spec": {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]}}')
        ready = lambda: any(c["type"] == "Ready" and c["status"] == "True" for c in edge.api("GET", f"/api/v1/nodes/{NODE}")["status"]["conditions"])
        wait_for("the node to be ready", ready, 90, every=0.2)
        said("node ready", since)
        Tools(center, base / "home-center").kubectl("--server", f"{center.url}/clusters/{SHOP}", "apply", "-f", "-", stdin=workload())
        all_works(node, edge, tools)

        # The center goes away, then the power: the edge and the node come back alone.
        center.kill()
        KEPT.clear()
        edge.kill()
        node.off()
        since = time.monotonic()
        edge.start()
        KEPT.append(edge.process)
        node.start()
        wait_for("the node after the reboot", ready, 90, every=0.2)
        said("node ready after a reboot without the center", since)
        all_works(node, edge, tools)
        said("everything after the reboot", since)
        # A change made on the edge while the center is away takes effect.
        tools.kubectl("create", "deployment", "local", "--image=example.com/busybox:1", "--", "sleep", "100000")
        wait_for("a Pod made offline", lambda: pods(edge, "app=local"), 60, every=0.3)
        logs = [path for path in base.glob("*.log") if path.stem in ("kubelet", "kube-proxy", "flanneld")]
        refused = [f"{path.stem}: {line}" for path in logs for line in path.read_text(errors="replace").splitlines()
                   if "forbidden" in line.lower() or "Unauthorized" in line]
        assert not refused, refused[:5]
        print("ok", flush=True)
    except AssertionError:
        print(tools.kubectl("get", "pods,nodes", "-A", "-o", "wide", code=None), flush=True)
        for name in node.processes:
            print(f"--- {name}\n{(base / f'{name}.log').read_text(errors='replace')[-3000:]}", flush=True)
        raise
    finally:
        node.off()
        node.groups(remove=True)
        edge.kill()
        center.kill()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2])
