"""The generated pages of docs/reference: each function asks the program and returns the text of a page."""
import pathlib
import re
import textwrap

import yaml
from center import binary
from edge import selvedge

NOTE = "<!-- Generated from the program. `UPDATE_DOCS=1` with tests/test_reference.py writes it anew. -->\n"
GROUPS = ("apis.kcp.io", "edge.kcp.io", "edge.selvedge.dev", "scheduling.kcp.io", "tenancy.kcp.io", "workload.kcp.io")
WIDTH = 118
OPTION = re.compile(r"^ +(?:-\w, )?--([a-z-]+)(?: <[^>]+>|\[[^]]*\])?(?:\.\.\.)?\n((?: {10}.*\n| *\n)+)", re.M)


def described(*command):
    """The help of a command; the program's name does not depend on the file that it is in."""
    text = selvedge(*command, "--help", env={"COLUMNS": "100"})
    text = re.sub(rf"(?m)^((?:Usage:|      ) ){re.escape(pathlib.Path(binary()).name)}\b", r"\1selvedge", text)
    return re.sub(r"\[env: (\w+)=[^]]*\]", r"[env: \1]", text)


def inner(text):
    section = re.search(r"^Commands:\n((?:  .*\n|\n)+)", text, re.M)
    names = re.findall(r"^  ([a-z][a-z-]*)", section.group(1), re.M) if section else []
    return [name for name in names if name != "help"]


def sections(*command):
    text = described(*command)
    name = " ".join(("selvedge", *command))
    shown = "\n".join(line.rstrip() for line in text.strip().splitlines())
    yield f"## {name}\n\n```text\n{shown}\n```\n"
    for each in inner(text):
        yield from sections(*command, each)


def command_line():
    return "\n".join([
        "# Command line\n", NOTE,
        "Every command with its options, as `--help` prints them. `selvedge man --dir DIR` writes the same as manual\n"
        "pages, and `selvedge completions` prints a completion script.\n",
        *sections()])


def options(*command):
    """Options of a command: (name, environment variable, default by the help, first sentence of the help)."""
    found = []
    text = described(*command)
    for name, body in OPTION.findall(text):
        env = re.search(r"\[env: (\w+)\]", body)
        sentence = " ".join(re.split(r"\n *\n|\[(?:env|default|possible)", body.strip())[0].split())
        default = re.search(r"\[default: ([^]]+)\]", body)
        default = " ".join(default.group(1).split()) if default else ""
        if name not in ("help", "version"):
            found.append((name, env.group(1) if env else "", default, sentence))
    return found


def camel(name):
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)


def flattened(value, prefix=""):
    """Settings of a configuration by their paths."""
    for key, inside in value.items():
        if isinstance(inside, dict) and inside:
            yield from flattened(inside, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inside


def cell(text):
    return text.replace("|", "\\|")


def shown(value):
    if value in (None, [], ""):
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def settings(command, config):
    """One table: each option of a role, with its place in the configuration file and its default."""
    defaults = dict(flattened(yaml.safe_load(selvedge(*config))))
    paths = {path.rsplit(".", 1)[-1]: path for path in defaults}
    rows = ["| option | in the file | environment | default | meaning |", "|---|---|---|---|---|"]
    for name, env, default, sentence in options(*command):
        path = paths.get(camel(name), "")
        # The help knows defaults that depend on the machine.
        default = default or shown(defaults.get(path))
        mark = lambda text: f"`{text}`" if text else ""  # noqa: E731
        rows.append(f"| `--{name}` | {mark(path)} | {mark(env)} | {mark(cell(default))} | {cell(sentence)} |")
    return "\n".join(rows) + "\n"


def configuration():
    return "\n".join([
        "# Configuration\n", NOTE,
        "A center and an edge read their settings from defaults, then a file (`--config`), then the environment, then\n"
        "options; the later one counts. `selvedge config` and `selvedge edge config` print what would be in use.\n"
        "An empty place in the second column means that the option has no default or is not a setting of the file.\n",
        "## A center\n", settings(("center",), ("config",)),
        "## An edge\n", settings(("edge",), ("edge", "config"))])


def families(text):
    """(name, type, help) of each family that a server shows."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    return [(name, kinds[name], words) for name, words in re.findall(r"^# HELP (\S+) (.*)$", text, re.M)]


def metrics(center, edge):
    """Families that both servers show, and those of one of them alone."""
    shown = [families(server.request("GET", "/metrics")[2].decode()) for server in (center, edge)]
    shown = [{family[0]: family for family in found} for found in shown]
    both = [name for name in shown[0] if name in shown[1]]

    def table(names, of):
        rows = [f"| `{name}` | {of[name][1]} | {cell(of[name][2])} |" for name in sorted(names)]
        return "\n".join(["| metric | type | meaning |", "|---|---|---|", *rows]) + "\n" if rows else "None.\n"

    return "\n".join([
        "# Metrics\n", NOTE,
        "What `/metrics` shows, in the OpenMetrics format. The samples of a counter have the ending `_total`.\n"
        "Reading it needs the right to `get` the path `/metrics`, which administrators have.\n",
        "## Of a center and of an edge\n", table(both, shown[0]),
        "## Of a center\n", table(set(shown[0]) - set(both), shown[0]),
        "## Of an edge\n", table(set(shown[1]) - set(both), shown[1])])


def fields(schema, schemas, prefix=""):
    """(path, type, description) of every field below a schema; lists and maps are `[]` and `{}`."""
    for name, inside in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        while inside.get("type") == "array" or isinstance(inside.get("additionalProperties"), dict):
            is_list = inside.get("type") == "array"
            path += "[]" if is_list else "{}"
            words = inside.get("description")
            inside = dict(inside["items"] if is_list else inside["additionalProperties"])
            inside.setdefault("description", words)
        kind = inside.get("type") or ("int or string" if inside.get("x-kubernetes-int-or-string") else "any")
        if "enum" in inside:
            kind = " or ".join(f"`{value}`" for value in inside["enum"])
        yield path, kind, " ".join((inside.get("description") or "").split())
        yield from fields(inside, schemas, f"{path}.")


def kinds(center):
    parts = []
    for group in GROUPS:
        found = center.api("GET", f"/clusters/root/apis/{group}")
        for version in found["versions"]:
            at = f"/clusters/root/apis/{version['groupVersion']}"
            resources = [one for one in center.api("GET", at)["resources"] if "/" not in one["name"]]
            document = center.api("GET", f"/clusters/root/openapi/v3/apis/{version['groupVersion']}")
            schemas = document["components"]["schemas"]
            for resource in sorted(resources, key=lambda one: one["kind"]):
                parts.append(kind(version["groupVersion"], resource, schemas))
    return "\n".join([
        "# Kinds\n", NOTE,
        "Our own kinds, with every field of `spec` and `status`. `[]` is a list, `{}` a map. They are served under\n"
        "`/clusters/<workspace>`; [placement-kinds.md](placement-kinds.md) says in which workspaces.\n",
        *parts])


def kind(group_version, resource, schemas):
    def is_it(schema):
        group, version = group_version.split("/")
        named = {"group": group, "version": version, "kind": resource["kind"]}
        return named in schema.get("x-kubernetes-group-version-kind", [])
    schema = next(schema for schema in schemas.values() if is_it(schema))
    scope = "in a namespace" if resource["namespaced"] else "for the whole workspace"
    short = f", short {', '.join(f'`{name}`' for name in resource['shortNames'])}" if resource.get("shortNames") else ""
    words = textwrap.fill(" ".join((schema.get("description") or "").split()), WIDTH)
    rows = [f"| `{path}` | {cell(type_)} | {cell(text)} |" for path, type_, text in fields(schema, schemas)
            if path.split(".")[0] not in ("apiVersion", "kind", "metadata")]
    table = "\n".join(["| field | type | meaning |", "|---|---|---|", *rows]) + "\n" if rows else ""
    head = f"## {resource['kind']}\n\n`{group_version}`, resource `{resource['name']}`{short}, {scope}.\n"
    return "\n".join(part for part in (head, words and words + "\n", table) if part)
