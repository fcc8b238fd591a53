"""Runs Kubernetes' own end-to-end tests against a fresh center and edge. docs/reference/upstream-tests.md says how.
Nothing of them is in this repository:
SELVEDGE_UPSTREAM names a directory with e2e.test, agnhost and, for the specs of the aggregation layer, sample-apiserver and etcd.

    SELVEDGE_UPSTREAM=~/kubernetes/bin python3 tests/upstream_e2e.py --focus 'sig-api-machinery.*Garbage collector'
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from center import TOOLS, Center
from edge import Edge

PROGRAMS = pathlib.Path(os.environ.get("SELVEDGE_UPSTREAM", "/nowhere"))
REGISTRY = "registry.k8s.io/"
TESTS = REGISTRY + "e2e-test-images/"


def wrapper(directory, name, text):
    path = directory / name
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)
    return path


def images(directory):
    """Images that the specs name → commands of this machine. Servers that listen everywhere are told the Pod's own address: all Pods share the machine."""
    agnhost = PROGRAMS / "agnhost"
    found = {TESTS + "agnhost": agnhost, REGISTRY + "pause": f"{agnhost} pause", TESTS + "nginx": f"{agnhost} netexec --http-port=80",
             TESTS + "httpd": f"{agnhost} netexec --http-port=80", TESTS + "busybox": "/bin/sh"}
    if (PROGRAMS / "sample-apiserver").exists():
        server = wrapper(directory, "sample-apiserver", f'exec {PROGRAMS}/sample-apiserver --bind-address="$POD_IP" "$@"')
        found |= {TESTS + "sample-apiserver": server, REGISTRY + "etcd": PROGRAMS / "etcd"}
    return found


def outcome(log):
    """(passed, [failed]) of a verbose log; a failed spec with its message."""
    passed, failed = 0, []
    for part in re.split(r"^-{30}$", log, flags=re.M):
        ended = re.search(r"^• (?:\[(\w+)[^\]]*\] )?\[[\d.]+ seconds\]$", part, re.M)
        if not ended:
            continue
        if not ended[1]:
            passed += 1
            continue
        name = re.search(r"^(\[sig-.*)$", part[ended.end():], re.M)
        why = re.search(r"^\s+\[(?:FAILED|PANICKED|TIMEDOUT|INTERRUPTED)\] (.*)$", part[ended.end():], re.M)
        failed.append((name[1] if name else "?", why[1][:400] if why else ""))
    return passed, failed


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--focus", default=r"\[sig-api-machinery\].*\[Conformance\]")
    options.add_argument("--skip", default=r"\[Slow\]|\[Disruptive\]")
    options.add_argument("--against", choices=["edge", "center"], default="edge", help="Pods run on the edge only")
    options.add_argument("--timeout", default="1h")
    options.add_argument("--log", default="e2e.log")
    options = options.parse_args()
    for name in ("e2e.test", "agnhost"):
        if not (PROGRAMS / name).exists():
            sys.exit(f"{PROGRAMS / name} is missing: build it from Kubernetes' sources and name its directory with SELVEDGE_UPSTREAM")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="selvedge-e2e-"))
    center = Center(directory / "center").start()
    mapped = [part for name, command in images(directory).items() for part in ("--image", f"{name}={command}")]
    edge = Edge(center, directory / "florin", "florin", args=["--runtime", "process", *mapped])
    try:
        edge.start()
        server = edge if options.against == "edge" else center
        # The same workspace without its path: a spec compares paths with those of a server that has only one.
        plain = directory / "kubeconfig"
        plain.write_text(server.kubeconfig.read_text().replace("/clusters/root", ""))
        command = [PROGRAMS / "e2e.test", f"--kubeconfig={plain}", "--provider=skeleton", "--allowed-not-ready-nodes=-1", "--num-nodes=1",
                   f"--ginkgo.focus={options.focus}", f"--ginkgo.skip={options.skip}", "--ginkgo.no-color", "--ginkgo.v", f"--ginkgo.timeout={options.timeout}",
                   "--dump-logs-on-failure=false", f"--kubectl-path={TOOLS / 'kubectl'}"]
        with open(options.log, "wb") as log:
            subprocess.run(list(map(str, command)), stdout=log, stderr=log, cwd=directory, check=False)
    finally:
        edge.end_containers()
        edge.kill()
        edge.forget_memory()
        center.kill()
        shutil.rmtree(directory, ignore_errors=True)
    passed, failed = outcome(pathlib.Path(options.log).read_text(errors="replace"))
    for name, why in failed:
        print(f"{name}\n    {why}")
    print(f"{passed} passed, {len(failed)} failed; everything is in {options.log}")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
