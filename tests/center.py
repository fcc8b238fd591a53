"""Starts the built binary and real clients against it. Used by every black-box test, and by the scripts beside them."""
import base64
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.parse

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
TOOLS = ROOT / ".tools" / "bin"


def binary():
    path = os.environ.get("SELVEDGE_BIN") or ROOT / "target" / "debug" / "selvedge"
    if not pathlib.Path(path).is_file():
        raise SystemExit(f"{path} is missing: build it with 'make build', or name it with SELVEDGE_BIN")
    return str(path)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def join(*threads, seconds=60):
    """Waits for threads, and fails if one does not end."""
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), f"{thread.name} did not end in {seconds} s"


def wait_for(what, condition, seconds=20.0, every=0.02):
    """Polls until the condition is truthy and returns its value; exceptions count as not yet."""
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            value = condition()
            if value:
                return value
        except Exception as e:  # noqa: BLE001 - whatever is not ready yet
            last = e
        time.sleep(every)
    raise AssertionError(f"waited {seconds} s in vain for {what}" + (f": {last}" if last else ""))


def rss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def die_with_parent():
    """In the child, before exec: a test run that is killed leaves no servers behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Etcd:
    """A single etcd member on free ports, in a directory of its own."""

    def __init__(self, directory, program=None):
        self.directory = pathlib.Path(directory)
        client, peer = free_port(), free_port()
        self.endpoint = f"http://127.0.0.1:{client}"
        peer = f"http://127.0.0.1:{peer}"
        self.log = open(self.directory / "etcd.log", "ab")
        self.process = subprocess.Popen(
            [str(program or TOOLS / "etcd"), "--data-dir", str(self.directory / "etcd"), "--name", "one",
             "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}",
             "--quota-backend-bytes", str(4 << 30)],
            stdout=self.log, stderr=self.log, preexec_fn=die_with_parent)
        wait_for("etcd", self.healthy)

    def healthy(self):
        conn = http.client.HTTPConnection(urllib.parse.urlparse(self.endpoint).netloc, timeout=2)
        conn.request("GET", "/health")
        return conn.getresponse().status == 200

    def stop(self):
        self.process.kill()
        self.process.wait(30)
        self.log.close()


class Center:
    """`selvedge center` on a data directory; it may be stopped, killed and started again."""

    def __init__(self, data_dir, store="sqlite", etcd=None, env=None, args=(), listen="127.0.0.1"):
        self.data_dir = pathlib.Path(data_dir)
        self.kubeconfig = self.data_dir / "admin.kubeconfig"
        self.log_path = self.data_dir.with_name(self.data_dir.name + ".log")
        self.command = [binary(), "center", "--data-dir", str(self.data_dir), "--store", store, *args]
        if etcd:
            self.command += ["--etcd-endpoints", etcd.endpoint]
        self.env = {**os.environ, **(env or {})}
        self.listen, self.port = listen, 0
        self.process = None
        self._tls = None

    def start(self, seconds=30.0, wait=True):
        # The file is the sign of readiness, so an old one must not be taken for a new one.
        self.kubeconfig.unlink(missing_ok=True)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*self.command, "--listen", f"{self.listen}:{self.port}"],
                                            stdout=log, stderr=log, env=self.env, preexec_fn=die_with_parent)
        if wait:
            self.wait_ready(seconds)
        return self

    def wait_ready(self, seconds=30.0):
        def ready():
            if self.process.poll() is not None:
                raise SystemExit(f"the center ended with {self.process.returncode}:\n{self.log_tail()}")
            return self.kubeconfig.exists() and self._read_kubeconfig()
        wait_for("admin.kubeconfig", ready, seconds, every=0.005)

    def _read_kubeconfig(self):
        config = yaml.safe_load(self.kubeconfig.read_text())
        if not config:
            return False
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        # Without the workspace that it points to: tests name the one that they mean.
        self.url = cluster["server"].rstrip("/").removesuffix("/clusters/root")
        # The same port after a restart, as a service behind a fixed address would have.
        parsed = urllib.parse.urlparse(self.url)
        self.host, self.port = parsed.hostname, parsed.port
        self.path = parsed.path
        self.token = user.get("token")
        keep = self.data_dir.with_name(self.data_dir.name + ".pem")
        keep.mkdir(exist_ok=True)
        self.ca = keep / "ca.crt"
        self.ca.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        tls = ssl.create_default_context(cafile=str(self.ca))
        self.cert = self.key = None
        if "client-certificate-data" in user:
            self.cert, self.key = keep / "admin.crt", keep / "admin.key"
            self.cert.write_bytes(base64.b64decode(user["client-certificate-data"]))
            self.key.write_bytes(base64.b64decode(user["client-key-data"]))
            tls.load_cert_chain(str(self.cert), str(self.key))
        # Whole at once: other threads connect meanwhile, and without the certificate they would be nobody.
        self._tls = tls
        return True

    def log_tail(self, lines=30):
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, seconds=20):
        """SIGTERM and the exit code."""
        if not self.alive():
            return self.process.returncode if self.process else None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"SIGTERM did not end the center in {seconds} s\n{self.log_tail()}") from None

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait(30)

    def rss(self):
        return rss_kib(self.process.pid)

    # ---- raw HTTP, for what no well-behaved client sends ----

    def connection(self, timeout=30):
        return http.client.HTTPSConnection(self.host, self.port, context=self._tls, timeout=timeout)

    def socket(self, timeout=30):
        raw = socket.create_connection((self.host, self.port), timeout=timeout)
        return self._tls.wrap_socket(raw, server_hostname=self.host)

    def request(self, method, path, body=None, content_type="application/json", accept="application/json",
                headers=None, timeout=30):
        """(status, headers, bytes). A body that is not bytes or text is sent as JSON."""
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        send = {"Accept": accept}
        if body is not None:
            send["Content-Type"] = content_type
        if self.token:
            send["Authorization"] = f"Bearer {self.token}"
        send.update(headers or {})
        with contextlib.closing(self.connection(timeout)) as conn:
            conn.request(method, self.path + path, body, send)
            reply = conn.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()

    def api(self, method, path, body=None, expect=None, **kw):
        """The decoded body; fails unless the status is 2xx or one of `expect`."""
        status, _, raw = self.request(method, path, body, **kw)
        assert (status in expect) if expect else (200 <= status < 300), f"{method} {path}: {status} {raw[:600]!r}"
        return json.loads(raw)

    def still_answers(self):
        assert self.alive(), f"the center ended with {self.process.returncode}:\n{self.log_tail()}"
        status, _, body = self.request("GET", "/readyz", accept="*/*", timeout=10)
        assert status == 200, body
        return True


class Tools:
    """kubectl and helm with a kubeconfig and a home of their own."""

    def __init__(self, center, home):
        self.center, self.home = center, pathlib.Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        self.env = {"PATH": f"{TOOLS}:{os.environ['PATH']}", "HOME": str(self.home), "KUBECONFIG": str(center.kubeconfig),
                    "KUBECTL_COMMAND_HEADERS": "false", "TERM": "dumb"}

    def run(self, command, stdin=None, code=0, timeout=60, env=None):
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout,
                              env={**self.env, **(env or {})}, cwd=self.home)
        if code is not None:
            assert done.returncode == code, (
                f"{' '.join(map(str, command))} ended with {done.returncode}, not {code}\n"
                f"--- stdout\n{done.stdout[-3000:]}\n--- stderr\n{done.stderr[-3000:]}")
        return done

    def kubectl(self, *args, stdin=None, code=0, **kw):
        """stdout of kubectl; `stdin` may be an object or a list of them."""
        if isinstance(stdin, (dict, list)):
            stdin = to_yaml(stdin)
        done = self.run(["kubectl", *map(str, args)], stdin, code, **kw)
        return done.stdout if code in (0, None) else done.stdout + done.stderr

    def json(self, *args, **kw):
        return json.loads(self.kubectl(*args, "-o", "json", **kw))

    def helm(self, *args, code=0, **kw):
        done = self.run(["helm", *map(str, args)], None, code, **kw)
        return done.stdout if code == 0 else done.stdout + done.stderr


def to_yaml(objects):
    return yaml.safe_dump_all(objects if isinstance(objects, list) else [objects], sort_keys=False)


@contextlib.contextmanager
def running(store="sqlite", directory=None):
    """A ready center in a fresh directory, gone afterwards."""
    base = pathlib.Path(directory or tempfile.mkdtemp(prefix="selvedge-"))
    etcd = Etcd(base) if store == "etcd" else None
    center = Center(base / "data", store, etcd)
    try:
        yield center.start()
    finally:
        center.kill()
        if etcd:
            etcd.stop()
        if directory is None:
            shutil.rmtree(base, ignore_errors=True)
