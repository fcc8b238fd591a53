"""A kubelet that runs nothing: TLS with a client certificate, logs, exec and port-forward over WebSocket, and what was asked of it.

Speaks v5.channel.k8s.io (exec, attach) and SPDY/3.1+portforward.k8s.io is left to real kubelets: port-forward here is v4.channel's
plain form, of which only the first bytes matter to a server that copies.
"""
import base64
import hashlib
import http.server
import json
import socket
import ssl
import struct
import subprocess
import threading
import time
import urllib.parse

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def self_signed(directory, name="node", addresses=("127.0.0.1",), ca=None):
    """A serving certificate: the kubelet's own, or signed by (certificate, key)."""
    key, crt, csr, ext = (directory / f"{name}.{end}" for end in ("key", "crt", "csr", "ext"))
    ext.write_text("subjectAltName=" + ",".join(f"IP:{a}" for a in addresses) + "\n")
    run = lambda *args: subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, timeout=60)
    run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", csr,
        "-subj", f"/O=system:nodes/CN=system:node:{name}")
    signer = ["-CA", ca[0], "-CAkey", ca[1], "-CAcreateserial"] if ca else ["-signkey", key]
    run("x509", "-req", "-in", csr, *signer, "-out", crt, "-days", "2", "-extfile", ext)
    return crt, key


class Socket:
    """One end of a WebSocket, without fragments."""

    def __init__(self, connection):
        self.connection = connection
        self.lock = threading.Lock()

    def exactly(self, n):
        data = b""
        while len(data) < n:
            piece = self.connection.recv(n - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def receive(self):
        first, second = self.exactly(2)
        length = second & 127
        if length == 126:
            length, = struct.unpack(">H", self.exactly(2))
        elif length == 127:
            length, = struct.unpack(">Q", self.exactly(8))
        mask = self.exactly(4) if second & 128 else b"\0\0\0\0"
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(self.exactly(length)))
        return first & 15, payload

    def send(self, payload, opcode=2):
        head = bytes([128 | opcode])
        if len(payload) < 126:
            head += bytes([len(payload)])
        elif len(payload) < 65536:
            head += bytes([126]) + struct.pack(">H", len(payload))
        else:
            head += bytes([127]) + struct.pack(">Q", len(payload))
        with self.lock:
            self.connection.sendall(head + payload)


class Kubelet:
    """`asked` holds (path, query, common name of the client) of every request."""

    def __init__(self, directory, client_ca, address="127.0.0.1", certificate=None):
        self.asked, self.lines, self.followers, self.open = [], ["one", "two", "three"], [], set()
        self.wake = threading.Condition()
        crt, key = certificate or self_signed(directory, addresses=(address,))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(crt, key)
        tls.load_verify_locations(client_ca)
        tls.verify_mode = ssl.CERT_REQUIRED
        kubelet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                self.request = tls.wrap_socket(self.request, server_side=True)
                super().setup()

            def log_message(self, *_):
                pass

            def do_GET(self):
                kubelet.answer(self)

            do_POST = do_GET

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Server((address, 0), Handler)
        self.address, self.port = self.server.server_address
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def node(self, name="n1"):
        """The Node as this kubelet would register it: metadata and status."""
        return ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}},
                {"addresses": [{"type": "Hostname", "address": "no-such-host.invalid"},
                               {"type": "InternalIP", "address": self.address}],
                 "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}}})

    def register(self, api, name="n1"):
        """`api(method, path, body)` talks to the server."""
        node, status = self.node(name)
        made = api("POST", "/api/v1/nodes", node)
        api("PUT", f"/api/v1/nodes/{name}/status", {**made, "status": {**made.get("status", {}), **status}})

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def say(self, line):
        with self.wake:
            self.lines.append(line)
            self.wake.notify_all()

    def answer(self, request):
        url = urllib.parse.urlsplit(request.path)
        query = urllib.parse.parse_qs(url.query)
        subject = dict(pair for part in request.connection.getpeercert()["subject"] for pair in part)
        self.asked.append((url.path, query, subject["commonName"], dict(request.headers)))
        what = url.path.split("/")[1]
        if url.path.endswith("/silent"):
            time.sleep(30)
        if what == "containerLogs":
            return self.log(request, query)
        if what in ("exec", "attach", "portForward"):
            return self.upgrade(request, what, query)
        body = json.dumps({"path": request.path, "method": request.command,
                           "body": request.rfile.read(int(request.headers.get("Content-Length") or 0)).decode()}).encode()
        request.send_response(404 if what == "missing" else 200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def log(self, request, query):
        if "previous" in query:
            body = b"previous terminated container not found"
            request.send_response(400)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            return request.wfile.write(body)
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()

        def chunk(text):
            data = text.encode()
            request.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            request.wfile.flush()

        lines = list(self.lines)
        seen = len(lines)
        if "tailLines" in query:
            lines = lines[len(lines) - int(query["tailLines"][0]):]
        stamp = "2026-01-02T03:04:05.000000000Z " if "timestamps" in query else ""
        text = "".join(f"{stamp}{line}\n" for line in lines)
        if "limitBytes" in query:
            text = text[:int(query["limitBytes"][0])]
        if text:
            chunk(text)
        while "follow" in query:
            with self.wake:
                self.wake.wait_for(lambda: len(self.lines) > seen, 30)
                new, seen = self.lines[seen:], len(self.lines)
            if new and new[-1] == "EOF":
                break
            if new and new[-1] == "CRASH":
                return request.connection.shutdown(socket.SHUT_RDWR)
            chunk("".join(f"{line}\n" for line in new))
        request.wfile.write(b"0\r\n\r\n")

    def upgrade(self, request, what, query):
        offered = [p.strip() for p in (request.headers.get("Sec-WebSocket-Protocol") or "").split(",")]
        wanted = {"portForward": "SPDY/3.1+portforward.k8s.io"}.get(what, "v5.channel.k8s.io")
        if request.headers.get("Upgrade", "").lower() == "echo":
            request.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            while data := request.connection.recv(65536):
                request.connection.sendall(data)
            return
        if wanted not in offered:
            request.send_response(403)
            request.send_header("Content-Length", "0")
            return request.end_headers()
        accept = base64.b64encode(hashlib.sha1(request.headers["Sec-WebSocket-Key"].encode() + GUID).digest()).decode()
        request.wfile.write((f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                             f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {wanted}\r\n\r\n").encode())
        request.close_connection = True
        with_socket = Socket(request.connection)
        self.open.add(with_socket)
        try:
            if what == "portForward":
                return self.forward(with_socket)
            self.run(with_socket, query)
        except (EOFError, OSError):
            pass
        finally:
            self.open.discard(with_socket)

    def run(self, ws, query):
        """A very small container: `exit N`, `cat`, what kubectl cp uses, or the command itself is said."""
        command = query.get("command", [])
        stdin = b""
        if "input" in query:
            while True:
                opcode, payload = ws.receive()
                if opcode == 8:
                    return
                if payload[:1] == b"\0":
                    if command[:1] == ["cat"]:
                        ws.send(b"\1" + payload[1:])
                    stdin += payload[1:]
                elif payload[:1] == b"\xff" and payload[1:2] == b"\0":
                    break
        code = 0
        if command[:1] == ["exit"]:
            code = int(command[1])
            ws.send(b"\2" + b"going\n")
        elif command[:1] in (["tar"], ["test"]):
            done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=60)
            ws.send(b"\1" + done.stdout)
            ws.send(b"\2" + done.stderr)
            code = done.returncode
        elif command[:1] == ["hold"]:
            ws.send(b"\1" + b"holding\n")
            while ws.receive()[0] != 8:
                pass
            return
        elif command[:1] != ["cat"]:
            ws.send(b"\1" + " ".join(command).encode() + b"\n")
        status = {"metadata": {}, "status": "Success"}
        if code:
            status = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                      "message": f"command terminated with non-zero exit code: exit status {code}",
                      "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}
        ws.send(b"\3" + json.dumps(status).encode())
        ws.send(struct.pack(">H", 1000), 8)
        # What is unread when a socket is closed resets it, and takes what was sent with it.
        while ws.receive()[0] != 8:
            pass

    def forward(self, ws):
        """SPDY inside a WebSocket: see `spdy` for the little of it that port-forward needs."""
        import spdy
        spdy.serve(ws, lambda data: b"echo " + data)
