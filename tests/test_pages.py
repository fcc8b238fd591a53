"""What the pages say can be typed: blocks are run, commands named in passing exist, with their options. Most pages are run by the test of what
they are about; here are the others, and the check that no page is left out."""
import contextlib
import functools
import re
import shlex
import shutil
import sqlite3

import pytest
import yaml

from center import HERE, ROOT, Center, Tools, binary, wait_for
from edge import Edge, selvedge

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/**/*.md"))]
COMMAND = re.compile(r"^(\$ |kubectl |selvedge |make |curl |helm |export )", re.M)
# Options that pages name and that are not ours: kubectl's, a kubelet's, the samples'.
OTHERS = {"--", "--as", "--previous", "--requestheader-client-ca-file", "--dir", "--cpu", "--memory", "--every"}


def blocks(page, *languages):
    """The content of a page's blocks in one of the languages, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.M | re.S)
    return [text for language, text in found if language in languages]


def in_passing(page):
    """Code within sentences, and lines set apart without being a block: each in one line."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text) + re.findall(r"^ {4}(\S.*)$", text, re.M)]


def test_no_page_with_commands_is_left_out():
    tests = "".join(file.read_text() for file in HERE.glob("test_*.py"))
    for page in PAGES:
        unknown = set(re.findall(r"^```(\w+)", page.read_text(), re.M)) - {"sh", "yaml", "text", "mermaid"}
        assert not unknown, f"{page.name}: nothing runs blocks of {unknown}"
        for text in blocks(page, ""):
            assert not COMMAND.search(text), f"{page.name}: commands are in blocks of sh, so that a test finds them:\n{text}"
        if blocks(page, "sh", "yaml"):
            assert re.search(rf'["/]{re.escape(page.name)}["\s,.]', tests), f"no test runs {page.name}"


@functools.cache
def described(*command):
    """What --help says of a command."""
    return selvedge(*command, "--help")


def inner(*command):
    """Names of the commands within a command."""
    section = re.search(r"^Commands:\n((?:  .*\n|\n)+)", described(*command), re.M)
    return [name for name in re.findall(r"^  ([a-z][a-z-]*)", section.group(1), re.M) if name != "help"] if section else []


def options(*command):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", described(*command)))


def all_options(*command):
    return options(*command).union(*(all_options(*command, name) for name in inner(*command)))


def test_commands_named_in_passing_exist():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    known = all_options() | OTHERS
    for page in PAGES:
        for code in in_passing(page):
            words = code.split(" # ")[0].split()
            if words[0] == "make" and len(words) > 1:
                assert words[1] in targets, f"{page.name}: {code}"
            elif words[0] == "selvedge":
                command, rest = [], words[1:]
                while rest and rest[0] in inner(*command):
                    command.append(rest.pop(0))
                # `selvedge keeper` and what it starts are for the program itself, and in no list.
                if command or not rest:
                    said = {word.split("=")[0] for word in rest if word.startswith("--")}
                    assert said <= options(*command), f"{page.name}: {code}"
                else:
                    assert rest[0] in ("keeper", "container", "on") or not rest[0].isalpha(), f"{page.name}: {code}"
            elif words[0].startswith("--"):
                assert re.split(r"[=,'\[]", words[0])[0] in known, f"{page.name}: {code}"


# ---- docs/reference/process-runtime.md ----

@pytest.fixture(scope="module")
def florin(tmp_path_factory):
    """Started as the page says, after it has joined."""
    base = tmp_path_factory.mktemp("page")
    start = shlex.split(blocks(ROOT / "docs/reference/process-runtime.md", "sh")[0])
    assert start[:4] == ["selvedge", "edge", "--data-dir", ".data/florin"]
    center = Center(base / "center")
    florin = Edge(center, base / "florin", "florin", args=start[4:])
    try:
        center.start()
        florin.start()
        yield florin
        assert "panicked" not in florin.log_path.read_text(errors="replace")
    finally:
        florin.kill()
        center.kill()
        florin.end_containers()


def test_the_process_runtime(florin, tmp_path):
    first, *others = blocks(ROOT / "docs/reference/process-runtime.md", "sh")
    assert len(others) == 2
    tools = Tools(florin, tmp_path)
    tools.env["PATH"] += f":{binary().rsplit('/', 1)[0]}"
    wait_for("the account of pods", lambda: tools.kubectl("get", "serviceaccount", "default"), 30)
    run = lambda script: tools.run(["bash", "-exuo", "pipefail", "-c", script.replace(".data/florin", str(florin.data_dir))], timeout=110).stdout  # noqa: E731
    out = run(others[0])
    for said in ("pod default/web on node florin of edge florin", "GET /hello", '"cpuMillis":200,"memoryMiB":16', " tick ", "good day from florin", "0.log"):
        assert said in out, said
    ip = florin.api("GET", "/api/v1/namespaces/default/pods/web")["status"]["podIP"]
    assert f"default/web on florin at {ip}:8080, its files below {florin.data_dir}" in out
    events = lambda: florin.api("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dother")["items"]  # noqa: E731
    wait_for("what to do with an unknown image", lambda: any("--image nginx=COMMAND" in event["message"] for event in events()))
    run(others[1])
    # The command line's words are the configuration's.
    printed = selvedge("edge", "config", *shlex.split(first)[2:])
    assert yaml.safe_load(printed)["images"] == {"example.com/greeter": ["echo", "good", "day", "from"]}
    (tmp_path / "edge.yaml").write_text(printed)
    assert selvedge("edge", "config", "--config", tmp_path / "edge.yaml") == printed


# ---- docs/how-to/operations.md ----

def backup_with(name, copy, make):
    """Makes copies of a store until one has an object of this name: as the page says, what was written just now may be
    missing. `make` makes the copy, in which the object is looked for by the end of its key."""
    def holds():
        copy.unlink(missing_ok=True)
        make()
        return f"/default/{name}".encode() in copy.read_bytes()
    wait_for(f"a copy with {name}", holds, every=0.1)


def test_a_backup_while_it_runs(tmp_path):
    """As the page says; its statement, though by another program than it names."""
    (statement,) = re.findall(r'sqlite3 D/store/store.db "(.*?)"', (ROOT / "docs/how-to/operations.md").read_text())
    center = Center(tmp_path / "D").start()
    maps = "/api/v1/namespaces/default/configmaps"
    try:
        center.api("POST", maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}})

        def copy():
            with contextlib.closing(sqlite3.connect(center.data_dir / "store/store.db")) as db:
                db.execute(statement.replace("backup.db", str(tmp_path / "backup.db")))

        backup_with("kept", tmp_path / "backup.db", copy)
        center.api("POST", maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "too-late"}})
        center.kill()
        restored = tmp_path / "R"
        (restored / "store").mkdir(parents=True)
        (tmp_path / "backup.db").rename(restored / "store/store.db")
        shutil.copytree(center.data_dir / "pki", restored / "pki")
        center = Center(restored).start()
        assert [o["metadata"]["name"] for o in center.api("GET", maps)["items"] if o["metadata"]["name"] != "kube-root-ca.crt"] == ["kept"]
    finally:
        center.kill()
