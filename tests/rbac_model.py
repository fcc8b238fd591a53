"""Who may do what, written from the rules of role-based access control and of workspaces, and from nothing of ours.

A world is a dictionary: workspace -> {"roles": [...], "bindings": [...]}, of plain Kubernetes objects.
"""
from dataclasses import dataclass, field, replace

ROOT = "root"
ACCOUNT = "system:serviceaccount:"
# What upstream lets everybody do; the rest of its default roles is bound to nobody in these tests.
EVERYBODY = [
    ({"system:authenticated", "system:unauthenticated"}, {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]}),
    ({"system:authenticated"}, {"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]}),
    ({"system:authenticated"}, {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]}),
    ({"system:authenticated"}, {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]}),
]
# What a node may do to the kinds in these tests; no pods run anywhere, so it needs no ConfigMap and no Secret.
NODE = [
    {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["services"]},
    {"verbs": ["create", "delete"], "apiGroups": [""], "resources": ["pods"]},
    {"verbs": ["update", "patch"], "apiGroups": [""], "resources": ["pods/status"]},
]


@dataclass(frozen=True)
class Who:
    name: str
    groups: frozenset = frozenset()
    # The workspace in which a ServiceAccount or a node is one.
    home: str = ROOT

    def seen_from(self, workspace):
        """The account of another workspace is nobody's account here."""
        if self.name.startswith(ACCOUNT) and self.home != workspace:
            name = f"system:kcp:serviceaccount:{self.home}:{self.name.removeprefix(ACCOUNT)}"
            return replace(self, name=name, groups=frozenset({"system:authenticated"}))
        return self


@dataclass(frozen=True)
class What:
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    # How it is asked over HTTP, if that matters (a list of one name).
    by_selector: bool = field(default=False, compare=False)


def matches(rule, what):
    if not any(v in ("*", what.verb) for v in rule.get("verbs", [])):
        return False
    if what.path:
        return any(u == what.path or (u.endswith("*") and what.path.startswith(u.rstrip("*"))) for u in rule.get("nonResourceURLs", []))
    full = f"{what.resource}/{what.subresource}" if what.subresource else what.resource
    fits = {"*", full} | ({f"*/{what.subresource}"} if what.subresource else set())
    return (any(g in ("*", what.group) for g in rule.get("apiGroups", []))
            and any(r in fits for r in rule.get("resources", []))
            and (not rule.get("resourceNames") or what.name in rule["resourceNames"]))


def concerns(subject, who, namespace):
    kind, name = subject["kind"], subject["name"]
    if kind == "User":
        return who.name == name
    if kind == "Group":
        return name in who.groups
    home = subject.get("namespace") or namespace
    return bool(home) and who.name == f"{ACCOUNT}{home}:{name}"


def role_rules(space, kind, namespace, name):
    roles = {(r["metadata"].get("namespace", ""), r["metadata"]["name"]): r for r in space["roles"]}
    role = roles.get(("" if kind == "ClusterRole" else namespace, name))
    if role is None:
        return []
    rules = list(role.get("rules") or [])
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors", []):
        for (home, _), part in roles.items():
            labels = part["metadata"].get("labels") or {}
            if not home and part is not role and selector["matchLabels"].items() <= labels.items():
                rules += part.get("rules") or []
    return rules


def rules_for(space, who, namespace):
    rules = [rule for groups, rule in EVERYBODY if groups & who.groups]
    for binding in space["bindings"]:
        home = binding["metadata"].get("namespace", "")
        if home in ("", namespace) and any(concerns(s, who, home) for s in binding.get("subjects", [])):
            ref = binding["roleRef"]
            rules += role_rules(space, ref["kind"], home, ref["name"])
    return rules


def may(world, workspace, who, what):
    """Roles alone, once one is in."""
    who = who.seen_from(workspace)
    if "system:masters" in who.groups:
        return True
    rules = rules_for(world[workspace], who, what.namespace)
    if "system:nodes" in who.groups and who.name.startswith("system:node:") and who.home == workspace:
        rules = rules + NODE
    return any(matches(rule, what) for rule in rules)


def may_enter(world, workspace, who):
    if workspace == ROOT or "system:masters" in who.groups:
        return True
    if who.name.startswith(ACCOUNT) and who.home == workspace:
        return True
    return may(world, workspace, who, What("access", path="/"))


def allowed(world, workspace, who, what):
    return workspace in world and may_enter(world, workspace, who) and may(world, workspace, who, what)
