"""An aggregated API server in plain Python, as an APIService registers one: it believes only the front proxy of its workspace.

Kinds: Flunder (namespaced) of the group wardle.example.com, and, if told so, NodeMetrics and PodMetrics of metrics.k8s.io and values of external.metrics.k8s.io.
"""
import base64
import http.server
import json
import os
import pathlib
import threading
import time
import uuid

from tls_server import serve

GROUP, VERSION = "wardle.example.com", "v1alpha1"
BASE = f"/apis/{GROUP}/{VERSION}"
APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
AUTHENTICATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class Flunders:
    """Objects with revisions, and everything that happened to them."""

    def __init__(self):
        self.objects, self.events, self.revision = {}, [], 0
        self.changed = threading.Condition()

    def put(self, kind, key, value):
        with self.changed:
            self.revision += 1
            value["metadata"]["resourceVersion"] = str(self.revision)
            if kind == "DELETED":
                self.objects.pop(key)
            else:
                self.objects[key] = value
            self.events.append((self.revision, kind, key, value))
            self.changed.notify_all()
        return value


class AggregatedServer:
    """`where` says what the workspace's ConfigMap extension-apiserver-authentication holds."""

    def __init__(self, certs, where, metrics=False, host="127.0.0.1", port=0):
        self.metrics, self.flunders, self.asked, self.refused = metrics, Flunders(), [], []
        self.names = json.loads(where["requestheader-allowed-names"])
        self.failing = self.stopping = False
        # Values of external metrics by their names.
        self.external = {}
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def user(self):
                """Who asks, if it is the front proxy that says so."""
                subject = self.connection.getpeercert().get("subject", ())
                names = [value for part in subject for key, value in part if key == "commonName"]
                if not set(names) & set(outer.names):
                    outer.refused.append(names)
                    return None
                headers = self.headers
                extra = {key.lower().removeprefix("x-remote-extra-"): headers.get_all(key)
                         for key in headers.keys() if key.lower().startswith("x-remote-extra-")}
                return {"name": headers.get("X-Remote-User"), "groups": headers.get_all("X-Remote-Group") or [],
                        "uid": headers.get("X-Remote-Uid"), "extra": extra}

            def handle_any(self):
                user = self.user()
                path, _, query = self.path.partition("?")
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else b""
                if self.headers.get("Transfer-Encoding") == "chunked":
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                outer.asked.append({"method": self.command, "path": path, "query": query, "user": user,
                                    "headers": {k.lower(): v for k, v in self.headers.items()}})
                if user is None:
                    return self.answer(401, status(401, "Unauthorized", "only the front proxy may ask"))
                if outer.failing:
                    return self.answer(500, status(500, "InternalError", "told to fail"))
                if self.headers.get("Upgrade") == "echo":
                    return self.echo()
                code, value = outer.respond(self, path, query, body, user)
                if value is not None:
                    self.answer(code, value)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any

            def answer(self, code, value, content_type="application/json"):
                raw = json.dumps(value).encode()
                self.send_response(code)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def chunk(self, value):
                raw = json.dumps(value).encode() + b"\n"
                self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
                self.wfile.flush()

            def echo(self):
                """Not HTTP any more: whatever comes goes back in capitals."""
                self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
                self.wfile.flush()
                while line := self.rfile.readline():
                    self.wfile.write(line.upper())
                    self.wfile.flush()
                self.close_connection = True

            def log_message(self, *args):
                pass

        proxies = where["requestheader-client-ca-file"]
        self.server = serve((host, port), Handler, certs / "tls.crt", certs / "tls.key", client_ca=proxies)
        self.port = self.server.server_address[1]

    def stop(self):
        self.stopping = True
        self.server.shutdown()
        self.server.server_close()

    def requests(self, path):
        return [asked for asked in self.asked if asked["path"] == path]

    # ---- what it serves ----

    def kinds(self):
        """(group, version, resources as aggregated discovery shows them)"""
        verbs = ["create", "delete", "deletecollection", "get", "list", "watch"]
        flunder = {"resource": "flunders", "responseKind": {"group": GROUP, "version": VERSION, "kind": "Flunder"},
                   "scope": "Namespaced", "singularResource": "flunder", "verbs": verbs, "shortNames": ["fl"]}
        yield GROUP, VERSION, [flunder]
        if self.metrics:
            kind = lambda name, kind, scope: {  # noqa: E731
                "resource": name, "scope": scope, "singularResource": "", "verbs": ["get", "list"],
                "responseKind": {"group": "metrics.k8s.io", "version": "v1beta1", "kind": kind}}
            yield "metrics.k8s.io", "v1beta1", [kind("nodes", "NodeMetrics", "Cluster"), kind("pods", "PodMetrics", "Namespaced")]

        if self.external:
            yield "external.metrics.k8s.io", "v1beta1", []

    def respond(self, handler, path, query, body, user):
        if path == "/apis":
            items = [{"metadata": {"name": group}, "versions": [{"version": version, "resources": resources, "freshness": "Current"}]}
                     for group, version, resources in self.kinds()]
            handler.answer(200, {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items},
                           "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
            return 200, None
        for group, version, resources in self.kinds():
            if path == f"/apis/{group}/{version}":
                plain = [{"name": r["resource"], "singularName": r["singularResource"], "namespaced": r["scope"] == "Namespaced",
                          "kind": r["responseKind"]["kind"], "verbs": r["verbs"], "shortNames": r.get("shortNames", [])} for r in resources]
                return 200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}", "resources": plain}
        if path == "/openapi/v3":
            return 200, {"paths": {f"apis/{GROUP}/{VERSION}": {"serverRelativeURL": f"/openapi/v3{BASE}?hash=CAFE"}}}
        if path == f"/openapi/v3{BASE}":
            return 200, OPENAPI_V3
        if path == "/openapi/v2":
            return 200, OPENAPI_V2
        if path.startswith("/apis/metrics.k8s.io/v1beta1/") and self.metrics:
            return self.usage(path)
        if path.startswith("/apis/external.metrics.k8s.io/v1beta1/namespaces/"):
            name = path.rsplit("/", 1)[1]
            items = [{"metricName": name, "metricLabels": {}, "timestamp": "2026-01-01T00:00:00Z", "value": value}
                     for value in self.external.get(name, [])]
            return 200, {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": items}
        if path.startswith(BASE):
            return self.flunder(handler, path, query, body, user)
        return 404, status(404, "NotFound", "no such path")

    def usage(self, path):
        usage = {"cpu": "123m", "memory": "456Mi"}
        head = {"apiVersion": "metrics.k8s.io/v1beta1", "timestamp": "2026-01-01T00:00:00Z", "window": "10s"}
        if path.endswith("/nodes"):
            return 200, {"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {},
                         "items": [{**head, "kind": "NodeMetrics", "metadata": {"name": "told-node"}, "usage": usage}]}
        return 200, {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {},
                     "items": [{**head, "kind": "PodMetrics", "metadata": {"name": "told-pod", "namespace": "default"},
                                "containers": [{"name": "c", "usage": usage}]}]}

    def flunder(self, handler, path, query, body, user):
        parts = path.removeprefix(BASE).strip("/").split("/")
        namespace = parts[1] if parts[0] == "namespaces" else ""
        name = parts[3] if len(parts) > 3 else ""
        here = lambda key: not namespace or key[0] == namespace  # noqa: E731
        store, key = self.flunders, (namespace, name)
        if handler.command == "POST":
            value = json.loads(body)
            made = value["metadata"]
            made.update(namespace=namespace, uid=str(uuid.uuid4()), creationTimestamp="2026-01-01T00:00:00Z")
            made.setdefault("annotations", {})["made-by"] = user["name"]
            if (namespace, made["name"]) in store.objects:
                return 409, status(409, "AlreadyExists", f"flunders {made['name']} already exists")
            return 201, store.put("ADDED", (namespace, made["name"]), value)
        if name and key not in store.objects:
            return 404, status(404, "NotFound", f'flunders.{GROUP} "{name}" not found')
        if handler.command == "DELETE":
            for gone in [key] if name else [k for k in list(store.objects) if here(k)]:
                store.put("DELETED", gone, dict(store.objects[gone]))
            return 200, status(200, "", "", "Success")
        if name:
            return 200, store.objects[key]
        if "watch=true" in query or "watch=1" in query:
            return self.watch(handler, query, here)
        items = [value for key, value in sorted(store.objects.items()) if here(key)]
        return 200, {"kind": "FlunderList", "apiVersion": f"{GROUP}/{VERSION}",
                     "metadata": {"resourceVersion": str(store.revision)}, "items": items}

    def watch(self, handler, query, here):
        asked = dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair)
        seen, store = int(asked.get("resourceVersion") or 0), self.flunders
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        end = time.monotonic() + 30
        while time.monotonic() < end and not self.stopping:
            with store.changed:
                news = [event for event in store.events if event[0] > seen]
                if not news:
                    store.changed.wait(0.2)
            for revision, kind, key, value in news:
                seen = revision
                if here(key):
                    handler.chunk({"type": kind, "object": value})
        handler.wfile.write(b"0\r\n\r\n")
        return 200, None


def status(code, reason, message, word="Failure"):
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": word, "reason": reason, "message": message, "code": code}


def service(name, namespace, port, host="127.0.0.1"):
    """An ExternalName Service: what takes the place of a URL."""
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": host, "ports": [{"port": port}]}}


def apiservice(name, port, ca, namespace="wardle", service="api", priorities=(2000, 200)):
    version, _, group = name.partition(".")
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": priorities[0], "versionPriority": priorities[1],
                     "service": {"name": service, "namespace": namespace, "port": port},
                     "caBundle": base64.b64encode(ca.read_bytes()).decode()}}


def available(api, name, prefix=""):
    """The condition Available: (status, reason, message)."""
    conditions = api("GET", f"{prefix}{APISERVICES}/{name}").get("status", {}).get("conditions", [])
    found = [c for c in conditions if c["type"] == "Available"]
    return tuple(found[0][field] for field in ("status", "reason", "message")) if found else ("Unknown", "", "")


GVK = [{"group": GROUP, "version": VERSION, "kind": "Flunder"}]
FIELDS = {"type": "object", "description": "A Flunder is what the sample server keeps.", "x-kubernetes-group-version-kind": GVK,
          "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                         "spec": {"type": "object", "description": "What is wanted.",
                                  "properties": {"reference": {"type": "string", "description": "The name of another flunder."}}}}}
OPERATION = {"operationId": "listFlunders", "x-kubernetes-action": "list", "x-kubernetes-group-version-kind": GVK[0],
             "responses": {"200": {"description": "OK"}}}
OPENAPI_V3 = {"openapi": "3.0.0", "info": {"title": "sample", "version": "v0"},
              "paths": {f"{BASE}/namespaces/{{namespace}}/flunders": {"get": OPERATION}},
              "components": {"schemas": {"com.example.wardle.v1alpha1.Flunder": FIELDS}}}
OPENAPI_V2 = {"swagger": "2.0", "info": {"title": "sample", "version": "v0"},
              "paths": {f"{BASE}/namespaces/{{namespace}}/flunders": {"get": OPERATION}},
              "definitions": {"com.example.wardle.v1alpha1.Flunder": FIELDS}}


def main():
    """In a Pod: certificates and what the ConfigMap says lie in directories, the address comes from the environment."""
    certs, where = pathlib.Path(os.environ["CERTS"]), pathlib.Path(os.environ["WHERE"])
    where = {path.name: path.read_text() for path in where.iterdir() if path.is_file()}
    AggregatedServer(certs, where, metrics=True, host=os.environ["HOST"], port=int(os.environ["PORT"]))
    threading.Event().wait()


if __name__ == "__main__":
    main()
