"""Records what a client of the Kubernetes API asks: a proxy without TLS in front of a server, that lets the client be who a certificate or a token
says. `selvedge` is not needed to read a recording; tests/test_user_nodes.py replays those in tests/recordings.

    python3 tests/recorder.py --kubeconfig edge/admin.kubeconfig --cert proxy.crt --key proxy.key --out kube-proxy.jsonl

prints the address that the client's kubeconfig names as its server.
"""
import argparse
import base64
import contextlib
import http.client
import http.server
import json
import ssl
import threading
import urllib.parse

import yaml

# What is the connection's own, or differs from run to run.
HOP = {"host", "connection", "transfer-encoding", "content-length", "accept-encoding", "authorization", "user-agent"}


class Recorder:
    """`requests` holds what was asked, in order: method, path, query, the headers that matter, body, and the status that was answered."""

    def __init__(self, host, port, ca, cert=None, key=None, token=None, out=None):
        self.tls = ssl.create_default_context(cafile=str(ca))
        if cert:
            self.tls.load_cert_chain(str(cert), str(key))
        self.host, self.port, self.token, self.out = host, port, token, out
        self.requests, self.lock = [], threading.Lock()
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def forward(self):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    recorder.forward(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def forward(self, asked):
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in asked.headers.items() if name.lower() not in HOP}
        url = urllib.parse.urlsplit(asked.path)
        record = {"method": asked.command, "path": url.path, "query": dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True)),
                  "headers": headers}
        if body:
            record["body"] = body.decode() if body[:4] != b"k8s\0" and body.isascii() else {"base64": base64.b64encode(body).decode()}
        send = dict(headers)
        if self.token:
            send["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPSConnection(self.host, self.port, context=self.tls, timeout=900)
        try:
            connection.request(asked.command, asked.path, body or None, send)
            answer = connection.getresponse()
            record["status"] = answer.status
            self.keep(record)
            self.answer(asked, answer)
        finally:
            connection.close()

    def keep(self, record):
        with self.lock:
            self.requests.append(record)
            if self.out:
                with open(self.out, "a", encoding="utf-8") as out:
                    out.write(json.dumps(record, sort_keys=True) + "\n")

    @staticmethod
    def answer(asked, answer):
        asked.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                asked.send_header(name, value)
        asked.send_header("Transfer-Encoding", "chunked")
        asked.end_headers()
        while piece := answer.read1(1 << 16):
            asked.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            asked.wfile.flush()
        asked.wfile.write(b"0\r\n\r\n")
        asked.wfile.flush()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--kubeconfig", required=True, help="of the server's administrator: where the server is, and its authority")
    options.add_argument("--cert"), options.add_argument("--key"), options.add_argument("--token")
    options.add_argument("--out", required=True)
    options = options.parse_args()
    cluster = yaml.safe_load(open(options.kubeconfig, encoding="utf-8"))["clusters"][0]["cluster"]
    url = urllib.parse.urlsplit(cluster["server"])
    ca = options.out + ".ca"
    with open(ca, "wb") as file:
        file.write(base64.b64decode(cluster["certificate-authority-data"]))
    recorder = Recorder(url.hostname, url.port, ca, options.cert, options.key, options.token, options.out)
    print(recorder.url, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
