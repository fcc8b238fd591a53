#!/usr/bin/env python3
"""apiprobe: a differential tester for Kubernetes-compatible API servers.

Scenarios (TOML) are lists of HTTP steps. `record` runs them against a reference
server and stores normalised transcripts; `check` runs them against another
server and compares. See data/apiprobe/README.md. Python 3.11, standard library only.
"""
import argparse
import http.client
import json
import random
import re
import socket
import ssl
import sys
import threading
import time
import tomllib
import urllib.parse
from pathlib import Path

from apiprobe_values import (TRANSFORMS, Normaliser, blank, canon, diff, edit, no_messages, pick, show, sort_list,
                             tokens)

HOME = Path(__file__).resolve().parent / "data" / "apiprobe"
TYPES = {
    "json": "application/json", "yaml": "application/yaml",
    "json-patch": "application/json-patch+json", "merge-patch": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml",
    "protobuf": "application/vnd.kubernetes.protobuf",
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "partial": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "partial-list": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "discovery": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
}
HEADERS = ("Content-Type", "Warning", "Retry-After")


# ---------------------------------------------------------------------- HTTP

class Server:
    def __init__(self, opts):
        url = urllib.parse.urlsplit(opts.server)
        self.tls, self.host = url.scheme == "https", url.hostname
        self.port = url.port or (443 if self.tls else 80)
        self.prefix, self.token, self.opts = url.path.rstrip("/"), opts.token, opts

    def connect(self, with_cert=True, timeout=70):
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        context = ssl.create_default_context(cafile=self.opts.ca)
        if self.opts.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if with_cert and self.opts.cert:
            context.load_cert_chain(self.opts.cert, self.opts.key)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)

    def send(self, method, path, headers, body, auth=None):
        """auth: None = ours, "none" = anonymous, otherwise a bearer token."""
        headers = {"User-Agent": "apiprobe/1.0", **headers}
        bearer = self.token if auth is None else None if auth == "none" else auth
        if bearer:
            headers["Authorization"] = "Bearer " + bearer
        conn = self.connect(with_cert=auth is None)
        conn.connect()
        path = urllib.parse.quote(self.prefix + path, safe="/?&=%,:+!()~*'@;")
        conn.putrequest(method, path, skip_accept_encoding=True)
        data = body.encode() if body is not None else None
        if data is not None:
            headers["Content-Length"] = str(len(data))
        for key, val in headers.items():
            for one in val if isinstance(val, list) else [val]:
                conn.putheader(key, one)
        conn.endheaders(data)
        return conn, conn.getresponse()


def kept_headers(resp):
    out = {}
    for name in HEADERS:
        vals = resp.headers.get_all(name)
        if vals:
            out[name] = "<present>" if name == "Retry-After" else vals[0] if name == "Content-Type" else vals
    return out


def decode(raw, ctype):
    if "json" in (ctype or "") or raw[:1] in (b"{", b"["):
        try:
            return json.loads(raw)
        except ValueError:
            pass
    if raw[:4] == b"k8s\0":
        return "<protobuf>"
    return raw.decode("utf-8", "replace").rstrip("\n").split("\n") if raw else ""


# ----------------------------------------------------------------- scenarios

class Run:
    """One run of one scenario against one server."""

    def __init__(self, scenario, server):
        self.scenario, self.server = scenario, server
        run_id = "".join(random.choices("bcdfghjkmnpqrstvwxz", k=8))
        self.vars = {"id": run_id, "ns": "probe-" + run_id}
        for key, val in scenario.get("vars", {}).items():
            self.vars[key] = self.fill(val)
        self.norm = Normaliser(run_id)
        self.results, self.problems, self.setups = [], [], 0

    def fill(self, value):
        if isinstance(value, dict):
            return {k: self.fill(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.fill(v) for v in value]
        if not isinstance(value, str):
            return value

        def sub(m):
            if m[1] == "pad" and m[2]:
                return "x" * int(m[2])
            return str(self.vars[m[1]]) if m[1] in self.vars else m[0]
        return re.sub(r"\{([a-z][a-z0-9_]*)(?::(\d+))?\}", sub, value)

    def request(self, step):
        words = self.fill(step["do"]).split(" ")
        method, path = words[0], words[-1]
        ctype = words[1] if len(words) == 3 else step.get("type", "json")
        headers = {"Accept": TYPES.get(step.get("accept", "json"), step.get("accept"))}
        body = step.get("body")
        if body is not None:
            body = self.fill(body) if isinstance(body, str) else json.dumps(self.fill(body))
            headers["Content-Type"] = TYPES.get(ctype, ctype)
        if "as" in step:
            headers["Impersonate-User"] = self.fill(step["as"])
            if "groups" in step:
                headers["Impersonate-Group"] = self.fill(step["groups"])
        headers.update(self.fill(step.get("headers", {})))
        return self.server.send(method, path, headers, body, self.fill(step.get("auth")))

    def call(self, step):
        """Send until the step's `wait` condition holds; returns (code, headers, body)."""
        wait = step.get("wait")
        end = time.time() + (wait or {}).get("seconds", 15) * self.server.opts.patience
        while True:
            conn, resp = self.request(step)
            raw = resp.read()
            conn.close()
            body = decode(raw, resp.headers.get("Content-Type"))
            if step.get("raw"):
                body = raw.decode("utf-8", "replace").split("\n")
            if not wait or time.time() > end:
                break
            if ("code" not in wait or resp.status == wait["code"]) and (
                    "path" not in wait or pick(body, tokens(self.fill(wait["path"]))) == self.fill(wait.get("equals"))):
                break
            time.sleep(0.1)
        return resp.status, kept_headers(resp), body

    def capture(self, step, body):
        for var, path in step.get("capture", {}).items():
            value = pick(body, tokens(path))
            self.vars[var] = "" if value is None else value

    def tidy(self, step, body, last=None):
        """Transform, normalise and trim one body or event."""
        masks = self.scenario.get("mask", []) + step.get("mask", [])
        ignore = step.get("ignore", []) + ([] if step.get("full") else self.scenario.get("ignore", []))
        self.norm.learn(body)
        if "only" in step:
            # normalise the whole first, so that relations between versions stay right
            whole = self.norm.tree(body, masks, last)
            paths = [self.norm.text(self.fill(path)) for path in step["only"]]
            body = {path: pick(whole, tokens(path)) for path in paths}
        if step.get("compact"):
            try:
                body = TRANSFORMS[step["compact"]](body)
            except (AttributeError, KeyError, TypeError):
                pass  # not what was expected: compare it as it is
        if "only" not in step:
            body = self.norm.tree(body, masks, last)
        for path in ignore:
            edit(body, tokens(path), blank)
        for path in step.get("unordered", []):
            holder = {"": body}
            edit(holder, [""] + tokens(path) if path != "." else [""], sort_list)
            body = holder[""]
        return body

    def plain_step(self, step):
        code, headers, body = self.call(step)
        self.capture(step, body)
        if not isinstance(body, str) or body:
            body = self.tidy(step, body)
        headers = {k: self.norm.tree(v, self.scenario.get("mask", []) + step.get("mask", []))
                   for k, v in headers.items()}
        return {"code": code, "headers": headers, "body": body}

    def watch_step(self, step, parent):
        """Open a watch, run the `during` steps, collect events."""
        spec, events, done = step["watch"], [], threading.Event()
        conn, resp = self.request(step)
        sock = conn.sock or getattr(resp.fp.raw, "_sock", None)
        out = {"code": resp.status, "headers": kept_headers(resp)}
        if resp.status != 200:
            out["body"] = self.tidy(step, decode(resp.read(), resp.headers.get("Content-Type")))
            for sub in step.get("during", []):
                self.step(sub, parent)
            return out
        want = spec.get("events", 10 ** 6)

        def reader():
            try:
                while len(events) < want:
                    line = resp.readline()
                    if not line:
                        out["closed"] = True
                        break
                    event = json.loads(line)
                    bookmark = event.get("type") == "BOOKMARK" and "initial-events-end" not in line.decode()
                    if spec.get("bookmarks") or not bookmark:
                        events.append(event)
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                pass
            done.set()
        thread = threading.Thread(target=reader, daemon=True)
        thread.start()
        time.sleep(spec.get("settle", 0.3))
        for sub in step.get("during", []):
            self.step(sub, parent)
        done.wait(spec.get("seconds", 5))
        hung_up = not done.is_set()
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass
        thread.join(2)
        conn.close()
        if hung_up:
            out.pop("closed", None)
        for event in events:
            self.capture(step, event)
        last = {}
        out["events"] = [self.tidy(step, event, last) for event in list(events)]
        if spec.get("unordered"):
            out["events"].sort(key=canon)
        if spec.get("distinct"):
            out["events"] = [e for i, e in enumerate(out["events"]) if e not in out["events"][:i]]
        return out

    def step(self, step, prefix=""):
        name = prefix + step["name"]
        time.sleep(step.get("pause", 0))
        try:
            if "watch" in step:
                got = self.watch_step(step, name + " / ")
            elif "repeat" in step:
                got = []
                for i in range(1, step["repeat"] + 1):
                    self.vars["i"] = i
                    got.append(self.plain_step(step))
            else:
                got = self.plain_step(step)
        except Exception as err:  # whatever the server did, the other steps go on
            got = {"error": f"{type(err).__name__}: {err}"}
        if step.get("setup"):
            self.setups += 1
            for one in got if isinstance(got, list) else [got]:
                code = one.get("code", 0)
                if code not in step.get("expect", [*range(200, 300), 409]):
                    self.problems.append(f"{name}: {canon(one)[:300]}")
                    break
            return
        if step.get("split") and isinstance(got.get("body"), dict):
            self.results.append([name + " [keys]", {"code": got["code"], "body": sorted(got["body"])}])
            self.results += [[f"{name} [{key}]", {"body": got["body"][key]}] for key in sorted(got["body"])]
        else:
            self.results.append([name, got])

    def go(self):
        made = []
        if self.scenario.get("namespace", True):
            made = [{"name": "namespace", "setup": True, "do": "POST /api/v1/namespaces",
                     "body": {"metadata": {"name": "{ns}"}}},
                    {"name": "default service account", "setup": True,
                     "do": "POST /api/v1/namespaces/{ns}/serviceaccounts", "body": {"metadata": {"name": "default"}}}]
        for step in made + self.scenario["step"]:
            self.step(step)
        tail = ["DELETE /api/v1/namespaces/{ns}"] if made else []
        for do in self.scenario.get("cleanup", []) + tail:
            try:
                self.call({"do": do})
            except (OSError, http.client.HTTPException):
                pass
        return self


def compare(golden, run, lenient):
    got, rows = dict(run.results), []
    view = no_messages if lenient else lambda node: node
    for step in golden["steps"]:
        name = step["name"]
        rows.append((name, diff(view(step["want"]), view(got[name])) if name in got
                     else [(".", "a result", "(absent)")]))
    return rows


# ----------------------------------------------------------------- commands

def load(opts):
    root = Path(opts.set) if opts.set else HOME
    files = {p.stem: p for p in sorted((root / "scenarios").glob("*.toml"))}
    for arg in opts.scenario or files:
        path = files.get(arg) or next((p for n, p in files.items() if n.split("-", 1)[-1] == arg), Path(arg))
        if not path.is_file():
            sys.exit(f"apiprobe: no scenario {arg}")
        scenario = tomllib.loads(path.read_text())
        scenario["file"] = path
        names = [s["name"] for s in scenario["step"]]
        twice = {n for n in names if names.count(n) > 1}
        if twice:
            sys.exit(f"apiprobe: {path.name}: step names used twice: {sorted(twice)}")
        yield path.stem, scenario


def skipped(scenario, opts):
    needs = set(scenario.get("needs", []))
    wanted = needs if opts.needs is None else set(filter(None, opts.needs.split(",")))
    return needs & set(opts.skip or []) or needs != wanted


def cmd_list(opts):
    def flat(steps):
        for s in steps:
            yield s
            yield from flat(s.get("during", []))
    total = 0
    for name, sc in load(opts):
        steps = list(flat(sc["step"]))
        golden = sc["file"].parent.parent / "golden" / (name + ".json")
        asserted = len([s for s in steps if not s.get("setup")])
        if golden.is_file():
            asserted = len(json.loads(golden.read_text())["steps"])
        total += asserted
        needs = "  needs " + ", ".join(sc["needs"]) if sc.get("needs") else ""
        print(f"{name}: {asserted} asserted, {len(steps) - len([s for s in steps if not s.get('setup')])} set-up"
              f"  {sc.get('title', '')}{needs}")
    print(f"{total} asserted steps")


def cmd_record(opts):
    server = Server(opts)
    for name, sc in load(opts):
        if skipped(sc, opts):
            continue
        run = Run(sc, server).go()
        out = Path(opts.out)
        out.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"name": n, "want": w}, ensure_ascii=False, sort_keys=True) for n, w in run.results]
        head = json.dumps({"scenario": name, "reference": opts.reference})
        (out / (name + ".json")).write_text(head[:-1] + ', "steps": [\n' + ",\n".join(lines) + "\n]}\n")
        print(f"{name}: {len(run.results)} steps recorded")
        for problem in run.problems:
            print("  set-up failed:", problem)


def cmd_check(opts):
    server, report, good, bad = Server(opts), {}, 0, 0
    for name, sc in load(opts):
        if skipped(sc, opts):
            continue
        where = Path(opts.golden) if opts.golden else sc["file"].parent.parent / "golden"
        if not (where / (name + ".json")).is_file():
            sys.exit(f"apiprobe: {name} has no transcript; record it first")
        golden = json.loads((where / (name + ".json")).read_text())
        run = Run(sc, server).go()
        rows = compare(golden, run, opts.lenient)
        passed = len([1 for _, d in rows if not d])
        good, bad = good + passed, bad + len(rows) - passed
        print(f"{name}: {passed}/{len(rows)}  (set-up: {run.setups - len(run.problems)}/{run.setups})", flush=True)
        for problem in run.problems:
            print("  set-up failed:", problem)
        for step, diffs in rows:
            if not diffs:
                if opts.verbose:
                    print("  ok  ", step)
                continue
            print("  FAIL", step)
            for path, want, got in diffs[:opts.diffs]:
                print(f"         {path or '.'}\n           want {show(want)}\n           got  {show(got)}")
            if len(diffs) > opts.diffs:
                print(f"         ... and {len(diffs) - opts.diffs} more differences")
        report[name] = {"passed": passed, "total": len(rows), "setup_failed": run.problems,
                        "failed": [{"step": s, "diffs": [{"path": p, "want": w, "got": g} for p, w, g in d]}
                                   for s, d in rows if d]}
    print(f"{good} passed, {bad} failed")
    if opts.json:
        Path(opts.json).write_text(json.dumps({"passed": good, "failed": bad, "scenarios": report}, indent=1) + "\n")
    sys.exit(1 if bad else 0)


def main():
    top = argparse.ArgumentParser(prog="apiprobe", description=__doc__.split("\n")[0])
    subs = top.add_subparsers(dest="command", required=True)
    for name, func in (("record", cmd_record), ("check", cmd_check), ("list", cmd_list)):
        p = subs.add_parser(name)
        p.set_defaults(func=func)
        p.add_argument("scenario", nargs="*", help="scenario name or TOML file; all when none is given")
        p.add_argument("--set", help="directory with scenarios/ and golden/ (default: data/apiprobe)")
        if name == "list":
            continue
        p.add_argument("--server", required=True, help="base URL, with a cluster-admin credential:")
        p.add_argument("--token")
        p.add_argument("--cert")
        p.add_argument("--key")
        p.add_argument("--ca", help="CA bundle of the server")
        p.add_argument("--insecure", action="store_true", help="do not verify the server's certificate")
        p.add_argument("--needs", help='run only scenarios with exactly these needs ("" = those without any)')
        p.add_argument("--skip", action="append", help="leave out scenarios with this need")
        p.add_argument("--patience", type=float, default=1.0, help="factor on the longest time a step polls")
        if name == "record":
            p.add_argument("--out", required=True)
            p.add_argument("--reference", default="Kubernetes 1.36.4", help="name kept in the transcripts")
        else:
            p.add_argument("--golden", help="directory of transcripts (default: golden/ of the set)")
            p.add_argument("--json", help="also write a report here")
            p.add_argument("--lenient", action="store_true", help="do not compare the wording of messages")
            p.add_argument("--diffs", type=int, default=4, help="differences shown for each failing step")
            p.add_argument("-v", "--verbose", action="store_true")
    opts = top.parse_args()
    opts.func(opts)


if __name__ == "__main__":
    main()
