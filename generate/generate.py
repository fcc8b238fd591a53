#!/usr/bin/env python3
"""Makes crates/objects/schema/data/schema.txt: the structure of every built-in kind, without prose.

Structure, list types and patch strategies come from the published package `kubernetes-validate`, protobuf field numbers
from the source of the crate `k8s-pb`; what neither says is in go-facts.txt and supplement.txt beside this script.
The kinds are those of crates/objects/schema/data/catalogue.txt.

    generate/generate.py [--definitions FILE] [--k8s-pb DIR]

Without arguments both packages are downloaded to a temporary directory.

The data file, line by line (`expand` in crates/objects/schema/src/types/builtin.rs belongs to its reader):

    core.v1.Pod gvk=/v1/Pod            a type; `atomic` marks a struct with one owner, `union=` a union's discriminator and fields
     name TYPE NUMBERS MARKS…          a field of it; numbers are a path through inlined messages, `-` if there are none
    enum core.v1.Protocol [...]        the values of an enumeration
    TYPE: s b i32 i64 f64 bytes any ios q time utime fields, a name, []T ([atomic]T, [set]T, [key,key]T), {}T ({atomic}T)
    MARKS: r required (with its place in the list, if that is not sorted); presence p, a or n (see go-facts.txt); merge, replace, retainKeys, key=; default=; go=; enum=; map-atomic
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "crates/objects/schema/data"
VERSION = "v1.36.0-local"
PACKAGE = "kubernetes-validate==1.37.0"
CRATE = "k8s-pb@0.9.0"

# How long names are shortened in the data file. The reader knows the same table.
PREFIXES = [
    ("io.k8s.apimachinery.pkg.apis.meta.", "meta."),
    ("io.k8s.apimachinery.pkg.runtime.", "runtime."),
    ("io.k8s.apimachinery.pkg.util.intstr.", "intstr."),
    ("io.k8s.apimachinery.pkg.api.resource.", "quantity."),
    ("io.k8s.apimachinery.pkg.version.", "version."),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.", "apiextensions."),
    ("io.k8s.kube-aggregator.pkg.apis.apiregistration.", "apiregistration."),
    ("io.k8s.api.", ""),
]

# Types whose JSON form is not what their definition says.
LEAVES = {
    "quantity.Quantity": "q",
    "intstr.IntOrString": "ios",
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "utime",
    "meta.v1.FieldsV1": "fields",
    "meta.v1.Patch": "any",
    "runtime.RawExtension": "any",
    "apiextensions.v1.JSON": "any",
    "apiextensions.v1.JSONSchemaPropsOrArray": "any",
    "apiextensions.v1.JSONSchemaPropsOrBool": "any",
    "apiextensions.v1.JSONSchemaPropsOrStringArray": "any",
}

# Reached by no resource, yet part of the API.
ROOTS = """
    meta.v1.APIGroup meta.v1.APIGroupList meta.v1.APIResourceList meta.v1.APIVersions meta.v1.DeleteOptions
    meta.v1.Status meta.v1.WatchEvent meta.v1.ListMeta meta.v1.Patch version.Info
    autoscaling.v1.Scale policy.v1.Eviction authentication.v1.TokenRequest core.v1.Binding
    core.v1.EphemeralContainer
""".split()


def short(name):
    for prefix, alias in PREFIXES:
        if name.startswith(prefix):
            return alias + name[len(prefix) :]
    return name  # a package that is not ours, such as metrics


# --- what the packages hold -------------------------------------------------------------------------------------------


def definitions(path):
    found = json.loads(path.read_text())["$defs"]
    return {short(name): definition for name, definition in found.items()}


def download_definitions(folder):
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=:none:", "-d", folder, PACKAGE],
        check=True,
    )
    wheel = next(folder.glob("kubernetes_validate-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        member = f"kubernetes_validate/kubernetes-json-schema/{VERSION}/_definitions.json"
        return pathlib.Path(archive.extract(member, folder))


def download_crate(folder):
    """Lets cargo fetch the crate as a dependency of an empty project."""
    name, version = CRATE.split("@")
    (folder / "src").mkdir()
    (folder / "src/lib.rs").write_text("")
    manifest = f'[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2024"\n[dependencies]\n{name} = "={version}"\n'
    (folder / "Cargo.toml").write_text(manifest)
    subprocess.run(["cargo", "vendor", "-q", "vendor"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "vendor" / name


def messages(crate):
    """Protobuf messages by lower-case short name: {field name in lower case: (number, message type or None)}."""
    found = {}
    for path in sorted((crate / "src").rglob("mod.rs")):
        package = "io.k8s." + ".".join(path.parent.relative_to(crate / "src").parts)
        package = package.replace("apiextensions_apiserver", "apiextensions-apiserver")
        package = package.replace("kube_aggregator", "kube-aggregator") + "."
        text = path.read_text()
        for name, body in re.findall(r"^pub struct (\w+) \{\n(.*?)^\}", text, re.M | re.S):
            fields = {}
            pattern = r'#\[prost\(([^\]]*?)tag ?= ?"(\d+)"\)\]\s*pub (?:r#)?(\w+):\s+(.*?),\n(?=    [#/]|\Z)'
            for kind, number, field, rust_type in re.findall(pattern, body, re.S):
                message = None
                if kind.startswith("message, optional"):
                    message = message_name(package, rust_type)
                fields[field.replace("_", "").lower()] = (int(number), message)
            found[short(package + name).lower()] = fields
    return found


def message_name(package, rust_type):
    inner = re.search(r"Option<\s*(?:::prost::alloc::boxed::Box<)?([^<>]+?),?\s*>", rust_type)[1]
    parts = inner.split("::")
    here = package.rstrip(".").split(".")
    if parts[0] == "crate":
        here, parts = ["io", "k8s"], parts[1:]
    while parts[0] == "super":
        here, parts = here[:-1], parts[1:]
    full = ".".join(here + parts)
    full = full.replace("apiextensions_apiserver", "apiextensions-apiserver").replace("kube_aggregator", "kube-aggregator")
    return short(full).lower()


def facts():
    """go-facts.txt as ({type: {field: [mark]}}, [enum line])."""
    fields, enums, current = {}, [], None
    for line in (HERE / "go-facts.txt").read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        if line.startswith("enum "):
            enums.append(line)
        elif line.startswith(" "):
            name, _, marks = line.strip().partition(" ")
            fields[current][name] = re.findall(r"(?:default=\"[^\"]*\"|\S)+", marks)
        else:
            current = line
            fields[current] = {}
    return fields, enums


# --- from definitions to lines ----------------------------------------------------------------------------------------


def kind_of(schema):
    """The JSON type, without the `null` that the package adds."""
    found = schema.get("type")
    if isinstance(found, list):
        return next(t for t in found if t != "null")
    return found


def type_of(schema):
    """A property as (type expression, names it refers to)."""
    if "$ref" in schema:
        name = short(schema["$ref"].rsplit("/", 1)[1])
        return name, [name]
    match kind_of(schema), schema.get("format"):
        case "array", _:
            inner, names = type_of(schema["items"])
            return f"[{list_type(schema)}]{inner}", names
        case "object", _ if "additionalProperties" in schema:
            inner, names = type_of(schema["additionalProperties"])
            atomic = "atomic" if schema.get("x-kubernetes-map-type") == "atomic" else ""
            return f"{{{atomic}}}{inner}", names
        case "string", "byte":
            return "bytes", []
        case "string", _:
            return "s", []
        case "boolean", _:
            return "b", []
        case "integer", form:
            return {"int32": "i32", "int64": "i64"}.get(form, "i64"), []
        case "number", _:
            return "f64", []
        case _:
            return "any", []


def list_type(schema):
    """Lists without a list type are what their patch strategy says: upstream converts them the same way."""
    match schema.get("x-kubernetes-list-type"):
        case "map":
            return ",".join(schema["x-kubernetes-list-map-keys"])
        case "set":
            return "set"
        case "atomic":
            return "atomic"
        case None if "merge" in schema.get("x-kubernetes-patch-strategy", "").split(","):
            return schema.get("x-kubernetes-patch-merge-key", "set")
        case _:
            return ""


def numbers(fields, all_messages, properties):
    """{property: path of numbers}, looking through messages that JSON shows inline."""
    wanted = {re.sub(r"\W", "", name).lower(): name for name in properties}
    found = {}
    for field, (number, message) in fields.items():
        if field in wanted:
            found[wanted[field]] = (number,)
        elif message in all_messages:
            inner = numbers(all_messages[message], all_messages, properties)
            for name, path in inner.items():
                found.setdefault(name, (number, *path))
    # A direct field always wins over one of the same name further down.
    for field, (number, _) in fields.items():
        if field in wanted:
            found[wanted[field]] = (number,)
    return found


def patch_marks(schema):
    strategies = schema.get("x-kubernetes-patch-strategy", "")
    marks = [s for s in strategies.split(",") if s]
    if key := schema.get("x-kubernetes-patch-merge-key"):
        marks.append(f"key={key}")
    return marks


def presence(schema, required, known):
    if known in ("p", "a", "n"):
        return [known]
    if known == "o":
        return []
    if required:
        return ["a"]
    struct = "$ref" in schema
    return ["p"] if struct else []


def gvk(schema):
    """Kinds of every group are marked `*`; the reader fills in the groups of the catalogue."""
    kinds = schema.get("x-kubernetes-group-version-kind", [])
    if len(kinds) > 3:
        return ["gvk=*"]
    return [f"gvk={k['group']}/{k['version']}/{k['kind']}" for k in kinds]


def struct_lines(name, schema, all_messages, known):
    head = [name, *gvk(schema)]
    if schema.get("x-kubernetes-map-type") == "atomic":
        head.append("atomic")
    for union in schema.get("x-kubernetes-unions", []):
        head.append(f"union={union.get('discriminator', '')}:{','.join(union['fields-to-discriminateBy'])}")
    properties = schema.get("properties", {})
    order = schema.get("required", [])
    required = set(order)
    paths = numbers(all_messages.get(name.lower(), {}), all_messages, properties)
    lines, refers, missing = [" ".join(head)], [], []
    for field in sorted(properties):
        prop = properties[field]
        expression, names = type_of(prop)
        refers += names
        marks = known.get(field, [])
        known_path = next((m[7:] for m in marks if m.startswith("number=")), "")
        path = known_path or ".".join(map(str, paths.get(field, ()))) or "-"
        if path == "-" and field not in ("apiVersion", "kind") and not name.startswith("version."):
            missing.append(f"{name}.{field}")
        line = [field, expression, path]
        if field in required:
            line.append("r" if order == sorted(order) else f"r{order.index(field)}")
        line += presence(prop, field in required, next((m for m in marks if len(m) == 1), ""))
        if "$ref" in prop and prop.get("x-kubernetes-map-type") == "atomic":
            line.append("map-atomic")
        line += patch_marks(prop)
        line += [m for m in marks if m.startswith(("go=", "enum=", "default="))]
        lines.append(" " + " ".join(line))
    return lines, refers, missing


def catalogue_roots(all_definitions):
    """The object and list types of the kinds in the catalogue, found by their marks."""
    kinds = set()
    version = None
    for line in (DATA / "catalogue.txt").read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        words = line.split()
        if not line.startswith(" "):
            version = words[0]
        elif not line.startswith("  "):
            kinds.add((version, words[1]))
            kinds.add((version, words[1] + "List"))
    for name, definition in all_definitions.items():
        for mark in definition.get("x-kubernetes-group-version-kind", []):
            api_version = f"{mark['group']}/{mark['version']}"
            if (api_version, mark["kind"]) in kinds:
                yield name


def main():
    arguments = argparse.ArgumentParser(description="Regenerates crates/objects/schema/data/schema.txt")
    arguments.add_argument("--definitions", type=pathlib.Path, help="_definitions.json of kubernetes-validate")
    arguments.add_argument("--k8s-pb", type=pathlib.Path, help="source of the k8s-pb crate")
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        all_definitions = definitions(arguments.definitions or download_definitions(folder))
        all_messages = messages(arguments.k8s_pb or download_crate(folder))
    known, enums = facts()

    queue = sorted(set(catalogue_roots(all_definitions)) | set(ROOTS))
    supplement = (HERE / "supplement.txt").read_text().split("\n", 1)[1].rstrip("\n")
    queue += [n for n in re.findall(r"[a-z]+\.v\d\.\w+", supplement) if n in all_definitions or n in LEAVES]
    blocks, missing = {}, []
    while queue:
        name = queue.pop()
        if name in blocks:
            continue
        if name in LEAVES:
            blocks[name] = [f"{name} = {LEAVES[name]}"]
            # Their JSON hides a message that protobuf needs.
            if "OrArray" in name:
                queue.append("apiextensions.v1.JSONSchemaProps")
            continue
        blocks[name], refers, unnumbered = struct_lines(
            name, all_definitions[name], all_messages, known.get(name, {})
        )
        missing += unnumbered
        queue += refers
    lines = [line for name in sorted(blocks) for line in blocks[name]]
    used = {m[5:] for line in lines for m in line.split() if m.startswith("enum=")}
    lines += supplement.split("\n")
    lines += [e for e in enums if e.split()[1] in used]
    (DATA / "schema.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(blocks)} types, {sum(line.startswith(' ') for line in lines)} fields")
    if missing:
        print("without a protobuf number:", *missing, sep="\n  ")


if __name__ == "__main__":
    main()
