"""docs/how-to/kubelet-runtime.md and deploy/kubelet/config.yaml: every command and every field, and with
a real kubelet if SELVEDGE_UPSTREAM names one."""
import os
import pathlib
import re
import subprocess

import pytest
import yaml

from center import ROOT, TOOLS, Center, die_with_parent, free_port, wait_for

CONFIG = ROOT / "deploy/kubelet/config.yaml"
PROGRAMS = pathlib.Path(os.environ.get("SELVEDGE_UPSTREAM", "/nowhere"))
# Fields of kubelet.config.k8s.io/v1beta1 in 1.36 that somebody on an edge may want; what is in none of them is a typing error.
FIELDS = set("""apiVersion kind enableServer staticPodPath podLogsDir syncFrequency fileCheckFrequency httpCheckFrequency staticPodURL staticPodURLHeader
address port readOnlyPort tlsCertFile tlsPrivateKeyFile tlsCipherSuites tlsMinVersion rotateCertificates serverTLSBootstrap authentication authorization
registryPullQPS registryBurst imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist eventRecordQPS eventBurst enableDebuggingHandlers
enableContentionProfiling healthzPort healthzBindAddress oomScoreAdj clusterDomain clusterDNS streamingConnectionIdleTimeout nodeStatusUpdateFrequency
nodeStatusReportFrequency nodeLeaseDurationSeconds imageMinimumGCAge imageMaximumGCAge imageGCHighThresholdPercent imageGCLowThresholdPercent
volumeStatsAggPeriod kubeletCgroups systemCgroups cgroupRoot cgroupsPerQOS cgroupDriver cpuManagerPolicy singleProcessOOMKill cpuManagerPolicyOptions
cpuManagerReconcilePeriod memoryManagerPolicy topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions qosReserved runtimeRequestTimeout
hairpinMode maxPods podCIDR podPidsLimit resolvConf runOnce cpuCFSQuota cpuCFSQuotaPeriod nodeStatusMaxImages maxOpenFiles contentType kubeAPIQPS
kubeAPIBurst serializeImagePulls maxParallelImagePulls evictionHard evictionSoft evictionSoftGracePeriod evictionPressureTransitionPeriod
evictionMaxPodGracePeriod evictionMinimumReclaim mergeDefaultEvictionSettings podsPerCore enableControllerAttachDetach protectKernelDefaults
makeIPTablesUtilChains iptablesMasqueradeBit iptablesDropBit featureGates failSwapOn memorySwap containerLogMaxSize containerLogMaxFiles
containerLogMaxWorkers containerLogMonitorInterval configMapAndSecretChangeDetectionStrategy systemReserved kubeReserved reservedSystemCPUs
showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup enforceNodeAllocatable allowedUnsafeSysctls volumePluginDir providerID
kernelMemcgNotification logging enableSystemLogHandler enableSystemLogQuery shutdownGracePeriod shutdownGracePeriodCriticalPods
shutdownGracePeriodByPodPriority crashLoopBackOff reservedMemory enableProfilingHandler enableDebugFlagsHandler seccompDefault memoryThrottlingFactor
registerWithTaints registerNode tracing localStorageCapacityIsolation containerRuntimeEndpoint imageServiceEndpoint failCgroupV1 userNamespaces""".split())
NESTED = {"authentication": {"x509": {"clientCAFile"}, "webhook": {"enabled", "cacheTTL"}, "anonymous": {"enabled"}},
          "authorization": {"mode": None, "webhook": {"cacheAuthorizedTTL", "cacheUnauthorizedTTL"}}}
DURATION = re.compile(r"^(\d+(\.\d+)?(ms|s|m|h))+$")


def blocks():
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/how-to/kubelet-runtime.md").read_text(), re.M | re.S)


def test_every_field_is_a_kubelets():
    config = yaml.safe_load(CONFIG.read_text())
    assert (config["apiVersion"], config["kind"]) == ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration")
    assert set(config) <= FIELDS, set(config) - FIELDS
    for field, known in NESTED.items():
        for name, value in config.get(field, {}).items():
            assert name in known, f"{field}.{name}"
            if isinstance(value, dict):
                assert set(value) <= known[name], f"{field}.{name}: {set(value) - known[name]}"
    for field, value in config.items():
        if field.endswith(("Period", "Frequency")) or field.startswith("shutdownGracePeriod"):
            assert DURATION.match(value), f"{field}: {value}"
    assert config["imageGCLowThresholdPercent"] < config["imageGCHighThresholdPercent"]
    # Whoever can connect to the port could otherwise run commands in every container.
    assert config["authentication"]["anonymous"]["enabled"] is False and config["authorization"]["mode"] == "Webhook"


@pytest.fixture(scope="module")
def edge(tmp_path_factory):
    """An API with the page's commands done. For a kubelet a center is the same API as an edge."""
    base = tmp_path_factory.mktemp("kubelet-runtime")
    center = Center(base / "data").start()
    center.etc = base / "etc"
    commands = [block for block in blocks() if not block.startswith("kubelet ")]
    assert len(commands) == 2
    script = "\n".join(commands).replace("/etc/kubernetes", str(center.etc))
    assert "/etc/kubernetes" not in script
    env = {"PATH": f"{TOOLS}:/usr/bin:/bin", "HOME": str(base), "KUBECONFIG": str(center.kubeconfig)}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    yield center
    center.stop()


def test_the_token_is_somebody_who_may_ask(edge):
    who = subprocess.run([f"{TOOLS}/kubectl", "--kubeconfig", edge.etc / "bootstrap.kubeconfig", "auth", "whoami", "-o", "json"],
                         capture_output=True, text=True, check=True, timeout=60).stdout
    who = yaml.safe_load(who)["status"]["userInfo"]
    assert who["username"] == "system:bootstrap:07401b" and "system:bootstrappers:kubelets" in who["groups"]
    assert "BEGIN CERTIFICATE" in (edge.etc / "edge-ca.crt").read_text()
    assert (edge.etc / "kubelet.yaml").read_text() == CONFIG.read_text()


@pytest.mark.timeout(240)
@pytest.mark.skipif(not (PROGRAMS / "kubelet").exists() or not (PROGRAMS / "fakecri").exists() or os.geteuid() != 0,
                    reason="SELVEDGE_UPSTREAM names no kubelet and fakecri, or we are not root")
def test_a_kubelet_takes_it_and_comes(edge, tmp_path):
    """The page's own command; but for where things lie and what would disturb the machine, the page's own configuration."""
    config = yaml.safe_load((edge.etc / "kubelet.yaml").read_text())
    config["authentication"]["x509"]["clientCAFile"] = str(edge.etc / "edge-ca.crt")
    config |= {"containerRuntimeEndpoint": f"unix://{tmp_path}/cri.sock", "port": free_port(), "healthzPort": 0, "cgroupDriver": "cgroupfs",
               "cgroupsPerQOS": False, "enforceNodeAllocatable": [], "localStorageCapacityIsolation": False, "failCgroupV1": False,
               "shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}
    (edge.etc / "kubelet.yaml").write_text(yaml.safe_dump(config))
    command = next(block for block in blocks() if block.startswith("kubelet "))
    command = command.replace("/etc/kubernetes", str(edge.etc)).replace("/var/lib/kubelet", str(tmp_path / "lib"))
    log = tmp_path / "kubelet.log"
    processes = []
    try:
        for argv in ([PROGRAMS / "fakecri", f"unix://{tmp_path}/cri.sock"], ["bash", "-c", "exec " + command]):
            with open(log, "ab") as out:
                processes.append(subprocess.Popen(list(map(str, argv)), stdout=out, stderr=out, preexec_fn=die_with_parent, cwd=tmp_path,
                                                  env={"PATH": f"{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path)}))

        def ready():
            code, _, _ = edge.request("GET", "/api/v1/nodes/florin-1")
            conditions = edge.api("GET", "/api/v1/nodes/florin-1")["status"].get("conditions", []) if code == 200 else []
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

        wait_for("the node to be ready", ready, 120, every=0.3)
        text = log.read_text(errors="replace")
        assert "strict decoding" not in text, text[-2000:]
        # It came by itself: nobody approved anything.
        requests = edge.api("GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]
        assert any(r["spec"]["username"] == "system:bootstrap:07401b" and r["status"].get("certificate") for r in requests)
    except AssertionError:
        print(log.read_text(errors="replace")[-3000:])
        raise
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait(30)
        for line in reversed(pathlib.Path("/proc/mounts").read_text().splitlines()):
            if line.split()[1].startswith(str(tmp_path)):
                subprocess.run(["umount", line.split()[1]], check=False, timeout=60)
