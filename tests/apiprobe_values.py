"""Values of answers for tests/apiprobe_run.py: paths into JSON, smaller forms of bodies, symbols for what may differ
between two servers, and differences between two values."""
import datetime
import json
import re


# ---------------------------------------------------------------- JSON paths
# a.b[0].c  a[*].b  a["x.y/z"]  conditions[type=Ready].status  **.managedFields

def tokens(path):
    out = []
    for m in re.finditer(r'\["([^"]+)"\]|\[(\d+)\]|\[(\*)\]|\[(\w+)=([^\]]+)\]|([^.\[\]]+)', path):
        quoted, index, star, key, want, plain = m.groups()
        out.append(quoted if quoted else int(index) if index else "*" if star
                   else (key, want) if key else plain)
    return out


def pick(node, toks):
    """The value at a path; a list of values after `*`; None when absent."""
    if not toks:
        return node
    head, rest = toks[0], toks[1:]
    if head == "*":
        kids = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        return [pick(k, rest) for k in kids]
    if isinstance(head, tuple):
        for kid in node if isinstance(node, list) else []:
            if isinstance(kid, dict) and str(kid.get(head[0])) == head[1]:
                return pick(kid, rest)
        return None
    if isinstance(node, list) and isinstance(head, int) and head < len(node):
        return pick(node[head], rest)
    if isinstance(node, dict) and head in node:
        return pick(node[head], rest)
    return None


def edit(node, toks, change):
    """Call change(parent, key) for every node that matches the path."""
    if not toks or not isinstance(node, (dict, list)):
        return
    head, rest = toks[0], toks[1:]
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    if head == "**":
        edit(node, rest, change)
        for k in keys:
            edit(node.get(k) if isinstance(node, dict) else node[k], toks, change)
        return
    for k in keys:
        if isinstance(node, dict) and k not in node:
            continue
        hit = head == "*" or head == k
        if isinstance(head, tuple):
            hit = isinstance(node[k], dict) and str(node[k].get(head[0])) == head[1]
        if hit:
            edit(node[k], rest, change) if rest else change(node, k)


def blank(parent, key):
    if isinstance(parent, dict):
        del parent[key]
    else:
        parent[key] = "<ignored>"


def canon(value):
    return json.dumps(value, sort_keys=True)


def sort_list(parent, key):
    if isinstance(parent[key], list):
        parent[key] = sorted(parent[key], key=canon)


# ---------------------------------------------------------- body transforms

def compact_discovery(body):
    """Aggregated discovery -> {group/version: {resource: one-line facts}}."""
    out = {}
    for group in body.get("items", []):
        for ver in group.get("versions", []):
            gv = (group["metadata"].get("name") or "core") + "/" + ver["version"]
            facts = out.setdefault(gv, {"freshness": ver.get("freshness")})
            for res in ver.get("resources", []):
                def line(r, scope=""):
                    kind = r.get("responseKind", {})
                    bits = [scope, kind.get("kind", "-"), ",".join(sorted(r.get("verbs", [])))]
                    if r.get("singularResource"):
                        bits.append("singular=" + r["singularResource"])
                    if r.get("shortNames"):
                        bits.append("short=" + ",".join(r["shortNames"]))
                    if r.get("categories"):
                        bits.append("categories=" + ",".join(sorted(r["categories"])))
                    return " ".join(b for b in bits if b)
                facts[res["resource"]] = line(res, res.get("scope", ""))
                for sub in res.get("subresources", []):
                    facts[res["resource"] + "/" + sub["subresource"]] = line(sub)
    return out


def compact_resources(body):
    """Unaggregated APIResourceList -> {resource: facts without storage hash}."""
    return {r["name"]: {k: sorted(v) if k == "verbs" else v for k, v in r.items()
                        if k not in ("name", "storageVersionHash")}
            for r in body.get("resources", [])}


def compact_schema(node):
    """An OpenAPI schema without its prose."""
    if isinstance(node, dict):
        return {k: compact_schema(v) for k, v in node.items()
                if not (k == "description" and isinstance(v, str))}
    return [compact_schema(v) for v in node] if isinstance(node, list) else node


def shape(node):
    """Types in place of values."""
    if isinstance(node, dict):
        return {k: shape(v) for k, v in node.items()}
    if isinstance(node, list):
        return [shape(v) for v in node]
    return type(node).__name__


TRANSFORMS = {"discovery": compact_discovery, "resources": compact_resources, "schema": compact_schema,
              "shape": shape, "paths": lambda b: sorted(b.get("paths", {})),
              "keys": lambda b: sorted(b) if isinstance(b, dict) else b}


# ------------------------------------------------------------- normalisation

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"(\d{4}-\d\d-\d\d)T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
JWT = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+")
AGE = re.compile(r"(\d+[smhdy])+")
SUFFIX = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}")


class Normaliser:
    """Replaces what legitimately differs between two servers or two runs.

    The run id, uids, recent times, generated names, allocated addresses and
    ports, tokens and continue keys become symbols. A resourceVersion becomes
    its relation to the one seen last for the same object (first, same, newer,
    older); that of a list its relation to the newest object seen (current, stale).
    """

    def __init__(self, run_id):
        self.run_id, self.names, self.uids = run_id, {}, {}
        self.last, self.known, self.newest = {}, set(), 0
        now = datetime.datetime.now(datetime.timezone.utc).date()
        self.days = {str(now + datetime.timedelta(days=d)) for d in range(-1, 370)}

    def learn(self, node):
        if isinstance(node, list):
            for kid in node:
                self.learn(kid)
        elif isinstance(node, dict):
            meta = node.get("metadata")
            if isinstance(meta, dict) and isinstance(meta.get("name"), str):
                name, prefix = meta["name"], meta.get("generateName") or "\0"
                if name.startswith(prefix) and name not in self.names:
                    tail = name[len(prefix):]
                    self.names[name] = prefix + ("<gen5>" if SUFFIX.fullmatch(tail) else "<gen?>")
                uid = meta.get("uid")
                if isinstance(uid, str) and UUID.fullmatch(uid) and uid not in self.uids:
                    base, n = self.names.get(name, name), 2
                    label = base
                    while label in self.uids.values():
                        label, n = f"{base}#{n}", n + 1
                    self.uids[uid] = label
            for kid in node.values():
                self.learn(kid)

    def text(self, s, masks=()):
        for name, label in self.names.items():
            s = s.replace(name, label)
        s = UUID.sub(lambda m: f"<uid:{self.uids[m[0]]}>" if m[0] in self.uids else "<uid>", s)
        s = TIME.sub(lambda m: m[0] if m[1] not in self.days else "<microtime>" if m[2] else "<time>", s)
        s = JWT.sub("<jwt>", s)
        for pattern in masks:
            s = re.sub(pattern, "<masked>", s)
        return s.replace(self.run_id, "ID")

    def version(self, meta, last):
        rv, uid = meta["resourceVersion"], meta.get("uid")
        if not isinstance(rv, str) or not rv.isdigit():
            return rv if rv == "" else f"<rv:not a number: {rv}>"
        num = int(rv)
        if not uid and last is not self.last:
            return "<rv>"
        if not uid:
            return "<rv:current>" if num >= self.newest else "<rv:stale>"
        before, last[uid] = last.get(uid), num
        word = ("first" if before is None else "same" if before == num
                else "newer" if num > before else "older")
        if last is not self.last:
            return f"<rv:{word},{'seen' if (uid, num) in self.known else 'unseen'}>"
        self.known.add((uid, num))
        self.newest = max(self.newest, num)
        return f"<rv:{word}>"

    def tree(self, node, masks=(), last=None):
        last = self.last if last is None else last
        if isinstance(node, list):
            return [self.tree(kid, masks, last) for kid in node]
        if isinstance(node, str):
            return self.text(node, masks)
        if not isinstance(node, dict):
            return node
        out = {}
        for key, val in node.items():
            name = self.text(key, masks)
            if key == "selfLink":
                continue
            if key == "metadata" and isinstance(val, dict) and "resourceVersion" in val:
                val = dict(val)
                label = self.version(val, last)
                val["resourceVersion"] = ""
                out[name] = self.tree(val, masks, last)
                out[name]["resourceVersion"] = label
                continue
            if key == "continue" and isinstance(val, str) and val:
                val = "<continue>"
            elif key in ("clusterIP", "podIP", "hostIP") and val and val != "None":
                val = "<ip>"
            elif key == "clusterIPs" and isinstance(val, list):
                val = [v if v == "None" else "<ip>" for v in val]
            elif key in ("nodePort", "healthCheckNodePort") and isinstance(val, int) and val:
                val = "<port>"
            elif key == "cells" and isinstance(val, list):
                val = ["<age>" if isinstance(v, str) and AGE.fullmatch(v) else v for v in val]
            out[name] = self.tree(val, masks, last)
            if key == "managedFields" and isinstance(val, list):
                # the server orders them by time of one second's grain: no two runs agree
                out[name].sort(key=lambda e: [str(e.get(k)) for k in ("manager", "operation", "subresource")]
                               if isinstance(e, dict) else [str(e)])
        return out


# ---------------------------------------------------------------- comparison

def diff(want, got, path=""):
    """Readable differences: (path, wanted, got)."""
    if type(want) is type(got) is dict:
        out = []
        for key in sorted(set(want) | set(got)):
            step = f'["{key}"]' if re.search(r"[.\[\] /]", key) else "." + key
            if key not in got:
                out.append((path + step, want[key], "(absent)"))
            elif key not in want:
                out.append((path + step, "(absent)", got[key]))
            else:
                out += diff(want[key], got[key], path + step)
        return out
    if type(want) is type(got) is list:
        out = []
        for i in range(max(len(want), len(got))):
            at = f"{path}[{i}]"
            if i >= len(got):
                out.append((at, want[i], "(absent)"))
            elif i >= len(want):
                out.append((at, "(absent)", got[i]))
            else:
                out += diff(want[i], got[i], at)
        return out
    return [] if want == got and type(want) is type(got) else [(path or ".", want, got)]


def show(value):
    text = value if value == "(absent)" else json.dumps(value, sort_keys=True)
    return text if len(text) <= 160 else text[:157] + "..."


def no_messages(node):
    if isinstance(node, dict):
        return {k: no_messages(v) for k, v in node.items() if not (k == "message" and isinstance(v, str))}
    return [no_messages(v) for v in node] if isinstance(node, list) else node
