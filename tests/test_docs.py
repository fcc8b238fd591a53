"""The documentation holds together: links lead somewhere, every page is in the book, references to code exist."""
import functools
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess

import pytest
from center import ROOT

REFERENCE = re.compile(r"`((?:crates|tests|tools|benches)/[\w./-]+):(\w+)`")
DEFINES = r"\b(?:fn|struct|enum|trait|const|static|type|mod|macro_rules!)\s+{}\b"


def markdown():
    """All Markdown files of the repository, by their paths in it."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split() if listed.returncode == 0 else []
    names = names or [str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))]
    return [name for name in names if (ROOT / name).is_file()]


def prose(text):
    """A page without its blocks of code; code in sentences stays."""
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def slug(heading):
    """The anchor of a heading."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


@functools.cache
def anchors(path):
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", prose(path.read_text()), re.M)}


def dead_links(path, text):
    """Links of a page that lead nowhere."""
    text = re.sub(r"`[^`\n]*`", "", prose(text))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        if not to.exists():
            yield f"{path.name} links to {target}, which is not there"
        elif anchor and to.suffix == ".md" and anchor not in anchors(to):
            yield f"{path.name} links to {target}, and no heading there has this anchor"


def test_links_lead_somewhere():
    pages = markdown()
    assert len(pages) > 80
    dead = [line for name in pages for line in dead_links(ROOT / name, (ROOT / name).read_text())]
    assert not dead, "\n".join(dead)


def test_dead_links_are_found(tmp_path):
    (tmp_path / "other.md").write_text("# A heading, with `code`\n\n```sh\n# no heading\n```\n")
    page = tmp_path / "page.md"
    good = "[a](other.md) [b](other.md#a-heading-with-code) [c](https://example.com)\n"
    good += "`[d](no.md)`\n```\n[e](no.md)\n```\n"
    assert not list(dead_links(page, good))
    found = list(dead_links(page, "[a](none.md) [b](other.md#no-heading) [c](other.md#gone)"))
    assert len(found) == 3


def test_every_page_is_in_the_summary():
    summary = (ROOT / "docs/SUMMARY.md").read_text()
    named = re.findall(r"\]\(([^)]+)\)", summary)
    assert len(named) == len(set(named)), "a page is there twice"
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} - {"SUMMARY.md"}
    assert set(named) == pages, set(named) ^ pages


def unknown_references(text):
    """References to code, `file:symbol`, whose file does not exist or does not define the symbol."""
    for name, symbol in REFERENCE.findall(text):
        file = ROOT / name
        if not file.is_file():
            yield f"{name} is not there"
        elif not re.search(DEFINES.format(re.escape(symbol)), file.read_text()):
            yield f"{name} defines no {symbol}"


def test_references_to_code_exist():
    flows = (ROOT / "docs/explanation/flows.md").read_text()
    assert len(REFERENCE.findall(flows)) > 40
    unknown = [f"{page}: {line}" for page in markdown() for line in unknown_references((ROOT / page).read_text())]
    assert not unknown, "\n".join(unknown)


def test_unknown_references_are_found():
    here = pathlib.Path("crates/selvedge/src/main.rs")
    assert not list(unknown_references(f"`{here}:main`"))
    assert list(unknown_references(f"`{here}:no_such_function`")) == [f"{here} defines no no_such_function"]
    assert list(unknown_references("`crates/none/src/lib.rs:main`")) == ["crates/none/src/lib.rs is not there"]


def folders_of_crates():
    return {file.parent.relative_to(ROOT / "crates") for file in ROOT.glob("crates/**/Cargo.toml")}


def test_architecture_names_every_crate():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for folder in folders_of_crates():
        is_named = f"`{folder.name}`" in text or f"`crates/{folder}`" in text
        assert is_named, f"ARCHITECTURE.md does not name crates/{folder}"


@pytest.fixture(scope="module")
def book():
    loader = importlib.machinery.SourceFileLoader("book", str(ROOT / "tools/docs"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("book", loader))
    loader.exec_module(module)
    return module


def test_the_book_has_only_links_of_its_own(book, tmp_path):
    """What the builder is given: all pages, no link that leaves the book, and a navigation with every page."""
    book.write(tmp_path)
    pages = tmp_path / "pages"
    dead = [line for page in pages.rglob("*.md") for line in dead_links(page, page.read_text())]
    assert not dead, "\n".join(dead)
    config = (tmp_path / "zensical.toml").read_text()
    for page in pages.rglob("*.md"):
        assert f'"{page.relative_to(pages)}"' in config, f"{page} is not in the navigation"


def test_links_out_of_the_book_become_text(book):
    pages = {"docs/a/one.md": "a/one.md", "docs/b/two.md": "b/two.md", "ARCHITECTURE.md": "c/architecture.md"}
    text = "[two](../b/two.md#x) [arch](../../ARCHITECTURE.md) [code](../../benches/kbench) [net](https://example.com)"
    assert book.relinked(text, "docs/a/one.md", pages) == (
        "[two](../b/two.md#x) [arch](../c/architecture.md) code [net](https://example.com)")


@pytest.mark.skipif(not (ROOT / ".tools/book/zensical").is_dir(), reason="`make docs` has not installed the builder")
def test_the_book_is_built_without_network(tmp_path):
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    env = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path), **nowhere}
    done = subprocess.run(["python3", str(ROOT / "tools/docs")], env=env,
                          capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    flows = (tmp_path / "book/explanation/flows.html").read_text()
    assert flows.count('class="mermaid"') == 4 and "<h2" in flows
    assert "EdgePlacement" in (tmp_path / "book/reference/kinds.html").read_text()
