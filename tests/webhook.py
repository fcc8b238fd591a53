"""A webhook server in plain Python, over TLS, with certificates that the kube-webhook program makes."""
import base64
import http.server
import json
import os
import pathlib
import subprocess

from center import binary, die_with_parent
from tls_server import serve


def program():
    return pathlib.Path(os.environ.get("KUBE_WEBHOOK_BIN") or pathlib.Path(binary()).with_name("kube-webhook"))


def certificates(directory, *names):
    subprocess.run([program(), "certificates", str(directory), *names], check=True, timeout=60)
    return pathlib.Path(directory)


def bundle(path):
    return base64.b64encode(pathlib.Path(path).read_bytes()).decode()


class Webhook:
    """Answers each path with a function from the AdmissionReview (or ConversionReview) request to the response's fields."""

    def __init__(self, certs, name="tls"):
        self.answers, self.asked = {}, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = self.path.split("?")[0]
                outer.asked.append((path, review))
                answer = outer.answers.get(path, lambda request: {})(review["request"])
                if isinstance(answer, int):
                    self.send_response(answer)
                    self.send_header("Location", "/elsewhere")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if not isinstance(answer, bytes):
                    response = {"uid": review["request"]["uid"], **answer}
                    if review["kind"] == "AdmissionReview":
                        response.setdefault("allowed", True)
                    answer = json.dumps({"kind": review["kind"], "apiVersion": review["apiVersion"],
                                         "response": response}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args):
                pass

        self.server = serve(("0.0.0.0", 0), Handler, certs / f"{name}.crt", certs / f"{name}.key")
        self.port = self.server.server_address[1]

    def url(self, path="/"):
        return f"https://127.0.0.1:{self.port}{path}"

    def requests(self, path):
        # Every new namespace gets a ConfigMap of its own, sooner or later.
        asked = [review["request"] for at, review in self.asked if at == path]
        return [request for request in asked if request.get("name") != "kube-root-ca.crt"]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def patch(*operations):
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


class RustWebhook:
    def __init__(self, certs):
        self.process = subprocess.Popen([program(), "serve", str(certs)], stdout=subprocess.PIPE, text=True,
                                        preexec_fn=die_with_parent)
        self.port = int(self.process.stdout.readline())

    def url(self, path):
        return f"https://127.0.0.1:{self.port}{path}"

    def stop(self):
        self.process.kill()
        self.process.wait(30)
