"""An edge behind a network of 300 ms delay each way, 5 % loss and 64 kbit/s: it joins, converges, stays connected, and its own API does not
notice. Real packets through a network namespace (network.py); skipped where none can be made."""
import time

import pytest

import network
from center import Center, wait_for
from edge import Edge, in_sync, make_workspace
from manifests import configmap

SHOP = "root:shop"
MAPS = "/api/v1/namespaces/default/configmaps"


class Far(Edge):
    """An edge in another network namespace."""

    def __init__(self, ns, center_at, listen_at, center, *args, **kw):
        super().__init__(center, *args, **kw)
        self.base = ["ip", "netns", "exec", ns, *self.base]
        self.center_at, self.listen_at = center_at, listen_at

    def center_url(self):
        return f"https://{self.center_at}:{self.center.port}"


@pytest.mark.timeout(300)
def test_slow_lossy_thin(tmp_path):
    if why := network.missing():
        pytest.skip(why)
    with network.bad_network() as (ns, center_at, edge_at):
        center = Center(tmp_path / "center", args=["--tls-names", center_at], listen="0.0.0.0")
        florin = Far(ns, center_at, edge_at, center, tmp_path / "florin", "florin", SHOP, listen=edge_at)
        try:
            center.start()
            make_workspace(center, SHOP)
            florin.start(90).wait_connected(90)
            at = f"/clusters/{SHOP}{MAPS}"
            for i in range(30):
                center.api("POST", at, configmap(f"thin-{i}", v=str(i), padding="x" * 200))
            began = time.monotonic()
            in_sync(center, SHOP, florin, 90)
            converged = time.monotonic() - began
            center.api("PUT", f"{at}/thin-0", configmap("thin-0", v="changed"))
            began = time.monotonic()
            wait_for("one change", lambda: florin.api("GET", f"{MAPS}/thin-0")["data"]["v"] == "changed", 30)
            one = time.monotonic() - began
            # Heartbeats are every 15 s: nothing is missed, and reads and local writes are as quick as ever.
            slowest, end = 0.0, time.monotonic() + 17
            since = florin.condition("HeartbeatHealthy")["lastTransitionTime"]
            while time.monotonic() < end:
                began = time.monotonic()
                florin.api("GET", MAPS)
                slowest = max(slowest, time.monotonic() - began)
                assert florin.connected()
                time.sleep(0.3)
            assert slowest < 2, f"a local read took {slowest:.1f} s"
            assert florin.condition("HeartbeatHealthy")["lastTransitionTime"] == since, "the link held all the time"
            print(f"30 objects in {converged:.1f} s, one change in {one:.1f} s, slowest local read {slowest * 1000:.0f} ms")
        finally:
            florin.kill()
            center.kill()
