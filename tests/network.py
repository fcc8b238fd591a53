"""A bad network between this namespace and another, packet by packet: delay, loss and a rate, under real TCP.

Two tun devices, one at each end, and a process between them that holds packets back and drops some, as `tc netem` does, but on any kernel
that lets us make a network namespace. Beside it a good way (veth), for the test itself."""
import contextlib
import fcntl
import heapq
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import time

TUNSETIFF, TUN, NO_INFO = 0x400454CA, 0x0001, 0x1000


def missing():
    """Why it cannot be tried here, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip") or not os.path.exists("/dev/net/tun"):
        return "there is no ip command or no /dev/net/tun"
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, timeout=60).returncode:
        return "network namespaces cannot be made here"
    return None


def ip(*args, ns=None):
    enter = ["ip", "netns", "exec", ns] if ns else []
    subprocess.run([*enter, "ip", *args], check=True, capture_output=True, timeout=60)


def tun(name):
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", name.encode(), TUN | NO_INFO))
    return file


@contextlib.contextmanager
def bad_network(delay=0.3, loss=0.05, rate=64_000 // 8):
    """`with bad_network() as (ns, center, edge):` – the namespace, the center's address across the bad link, the edge's across the good one."""
    n = os.getpid() % 200 + 20
    ns, near, far, good = f"svg{n}", f"svgn{n}", f"svgf{n}", f"svgv{n}"
    bad_net, good_net = f"10.{n}.77", f"10.{n}.78"
    ip("netns", "add", ns)
    carrier = None
    try:
        carrier = subprocess.Popen([sys.executable, __file__, ns, near, far, str(delay), str(loss), str(rate)], stdout=subprocess.PIPE)
        assert carrier.stdout.readline(), "the carrier of packets does not start"
        ip("addr", "add", f"{bad_net}.1/30", "dev", near)
        ip("link", "set", near, "up")
        ip("addr", "add", f"{bad_net}.2/30", "dev", far, ns=ns)
        ip("link", "set", far, "up", ns=ns)
        ip("link", "set", "lo", "up", ns=ns)
        ip("link", "add", good, "type", "veth", "peer", "name", "good", "netns", ns)
        ip("addr", "add", f"{good_net}.1/30", "dev", good)
        ip("link", "set", good, "up")
        ip("addr", "add", f"{good_net}.2/30", "dev", "good", ns=ns)
        ip("link", "set", "good", "up", ns=ns)
        yield ns, f"{bad_net}.1", f"{good_net}.2"
    finally:
        if carrier:
            carrier.kill()
            carrier.wait(30)
        subprocess.run(["ip", "netns", "del", ns], capture_output=True, timeout=60)


class Way:
    """One direction: packets leave after the delay, no faster than the rate, some never; a full queue drops more."""

    def __init__(self, sink, delay, loss, rate):
        self.sink, self.delay, self.loss, self.rate = sink, delay, loss, rate
        self.queue, self.free_at, self.count = [], 0.0, 0

    def take(self, packet, now):
        if random.random() < self.loss or len(self.queue) > 1000:
            return
        self.free_at = max(self.free_at, now) + len(packet) / self.rate
        self.count += 1
        heapq.heappush(self.queue, (self.free_at + self.delay, self.count, packet))

    def give(self, now):
        while self.queue and self.queue[0][0] <= now:
            with contextlib.suppress(OSError):
                os.write(self.sink, heapq.heappop(self.queue)[2])

    def next(self):
        return self.queue[0][0] if self.queue else float("inf")


def carry(ns, near, far, delay, loss, rate):
    here = tun(near)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    import ctypes
    libc = ctypes.CDLL(None)
    libc.prctl(1, signal.SIGKILL)
    there_ns = os.open(f"/run/netns/{ns}", os.O_RDONLY)
    assert libc.setns(there_ns, 0x40000000) == 0
    there = tun(far)
    assert libc.setns(home, 0x40000000) == 0
    print("ready", flush=True)
    ways = {here: Way(there, delay, loss, rate), there: Way(here, delay, loss, rate)}
    while True:
        now = time.monotonic()
        wait = min(way.next() for way in ways.values()) - now
        for file in select.select(list(ways), [], [], max(0, min(wait, 1)))[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    ways[file].take(os.read(file, 65536), time.monotonic())
        for way in ways.values():
            way.give(time.monotonic())


if __name__ == "__main__":
    carry(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]))
