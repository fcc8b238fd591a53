"""Which door opens for whom: an independent model of isolation, written from the documentation and from nothing of ours.

Roles inside one workspace are rbac_model.py's. This module adds credentials, impersonation, workspaces and the doors that lead
from one workspace to another: mailboxes, tunnels to edges, export views, and the paths of the link.
"""
from dataclasses import dataclass, field, replace

from rbac_model import ACCOUNT, ROOT, What, Who, allowed, may_enter

SIGNED = frozenset({"system:authenticated"})
MASTERS = "system:masters"
# The status of these kinds is written by the server only.
SERVER_ONLY = {"apibindings", "apiexports", "apiresourceschemas"}
EVERYWHERE = "*"


@dataclass(frozen=True)
class Mask:
    """Whom somebody asks to become."""
    name: str
    groups: tuple = ()
    extra: tuple = ()  # pairs of a key and a value


@dataclass(frozen=True)
class Person:
    """A credential, and perhaps a mask."""
    label: str
    who: Who
    valid: bool = True
    mask: Mask | None = None
    at_edge: Who | None = None      # whom the edge's own server knows by the same credential

    def wearing(self, name, *groups, extra=()):
        return replace(self, label=f"{self.label} as {name}" + "".join(f"+{g.rpartition(':')[2]}" for g in groups) + ("+extra" if extra else ""),
                       mask=Mask(name, groups, tuple(extra)))


@dataclass
class World:
    spaces: dict                    # workspace -> {"roles": [...], "bindings": [...]}
    edge: dict                      # the roles of the edge's own server, as the one workspace "root"
    target: tuple                   # (workspace, name) of the SyncTarget behind the tunnel
    mailbox: str
    provider: str                   # workspace of the export "widgets"
    binders: set                    # workspaces that bind it
    claims: dict = field(default_factory=dict)  # binder -> resources that it gave to the provider
    parts: dict = field(default_factory=dict)   # namespace of the edge -> the workspace that has it there
    binders_may: frozenset = frozenset({"get", "list", "watch"})  # the provider's maximalPermissionPolicy


def becomes(world, person, space):
    """Who a person is in a workspace; None if the server refuses to say."""
    if not person.valid:
        return None
    sender, mask = person.who, person.mask
    if mask is None:
        return sender
    asked = [What("impersonate", resource="users", name=mask.name)]
    if mask.name.startswith(ACCOUNT):
        namespace, _, name = mask.name.removeprefix(ACCOUNT).partition(":")
        asked = [What("impersonate", resource="serviceaccounts", namespace=namespace, name=name)]
    asked += [What("impersonate", resource="groups", name=g) for g in mask.groups]
    asked += [What("impersonate", "authentication.k8s.io", "userextras", key, name=value) for key, value in mask.extra]
    if not all(allowed(world.spaces, space, sender, what) for what in asked):
        return None
    # Nobody is the server, but the server.
    if mask.name == "system:apiserver" and space != ROOT:
        return None
    return Who(mask.name, SIGNED | set(mask.groups), space)


def api(world, person, space, what):
    """A request to /clusters/<space>/…"""
    if space == EVERYWHERE:
        return is_master(person) and what.verb in ("get", "list", "watch")
    if space not in world.spaces:
        # Only somebody who may do everything is told that a workspace is not there.
        return is_master(person)
    who = becomes(world, person, space)
    if who is None or not allowed(world.spaces, space, who, what):
        return False
    if what.subresource == "status" and what.resource in SERVER_ONLY and what.verb in ("update", "patch"):
        return False
    if what.resource == "widgets" and space in world.binders and what.verb not in world.binders_may:
        return is_master(person)
    return True


def is_master(person):
    """In system:masters by the credential itself: it counts everywhere."""
    return person.valid and person.mask is None and MASTERS in person.who.groups


def mailbox(world, person, what):
    """The roles of the workspace of mailboxes decide, and nobody writes."""
    return is_master(person)


def tunnel(world, person, what, method):
    """Both sides decide: synctargets/proxy at the center, then the edge's roles for the same user."""
    space, name = world.target
    verb = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
    who = becomes(world, person, space)
    if who is None or not allowed(world.spaces, space, who, What(verb, "workload.kcp.io", "synctargets", "proxy", name=name)):
        return False
    if person.mask:
        # What somebody became by impersonation in a workspace, they are there only: groups that rule stay behind.
        who = replace(who, groups=who.groups - {MASTERS})
    if who.name.startswith(ACCOUNT):
        who = Who(f"system:kcp:serviceaccount:{who.home}:{who.name.removeprefix(ACCOUNT)}", SIGNED)
    return allowed(world.edge, ROOT, replace(who, groups=who.groups - {"system:nodes"}, home=ROOT), what)


def part(world, person, space, what):
    """A workspace's own namespaces on the edge: the workspace's roles, whose the namespace is, and the edge's roles for the same user. Nobody writes, and
    nobody goes there as whom they became."""
    who = becomes(world, person, space)
    if who is None or not allowed(world.spaces, space, who, what):
        return False
    if what.verb not in ("get", "list", "watch") or world.parts.get(what.namespace) != space or person.mask:
        return False
    if who.name.startswith(ACCOUNT):
        who = Who(f"system:kcp:serviceaccount:{who.home}:{who.name.removeprefix(ACCOUNT)}", SIGNED)
    return allowed(world.edge, ROOT, replace(who, groups=who.groups - {"system:nodes"}, home=ROOT), what)


def view(world, person, space, what):
    """Where the provider looks at all binders: its own rights on apiexports/content, and what binders gave."""
    who = becomes(world, person, world.provider)
    content = What(what.verb, "apis.kcp.io", "apiexports", "content", name="widgets")
    if who is None or not allowed(world.spaces, world.provider, who, content):
        return False
    if space != EVERYWHERE and space not in world.binders:
        return False
    if what.resource == "widgets":
        return True
    # A provider's right to claimed roles is no right to give away what it does not have in the binder's workspace.
    if what.resource == "clusterrolebindings" and what.verb == "create" and not is_master(person):
        return False
    given = [s for s, resources in world.claims.items() if what.resource in resources]
    return bool(given) if space == EVERYWHERE else space in given


def link(world, person, door):
    """The link's own paths. `join` without a request answers everybody with the authority; the others, a new certificate among them, are
    for edges that are welcome. Nobody wears a mask there: headers of impersonation mean nothing."""
    return door == "join" or person.valid and "system:edges" in person.who.groups


def edge(world, person, what):
    """The edge's own server knows its own accounts only; whoever the center vouches for comes through the tunnel."""
    if person.at_edge is None or person.mask is not None:
        return False
    return allowed(world.edge, ROOT, person.at_edge, what)


def proxy(world, person, space, what):
    """The server dials for clients in the root workspace only: elsewhere tenants write where nodes and pods are."""
    return space == ROOT and api(world, person, space, what)


def enters(world, person, space):
    who = becomes(world, person, space)
    return who is not None and space in world.spaces and may_enter(world.spaces, space, who)
