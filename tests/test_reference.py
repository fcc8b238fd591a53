"""The generated pages of docs/reference say what the program says. `UPDATE_DOCS=1` writes them anew."""
import os

import pytest
import reference
from center import ROOT, Center
from edge import Edge


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    base = tmp_path_factory.mktemp("reference")
    center = Center(base / "center")
    florin = Edge(center, base / "florin", "florin")
    try:
        center.start()
        florin.start()
        florin.wait_connected()
        yield center, florin
    finally:
        florin.kill()
        center.kill()
        florin.end_containers()


def compare(name, text):
    page = ROOT / "docs/reference" / name
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(text)
    assert page.read_text() == text, f"{page} is out of date: run this test with UPDATE_DOCS=1"


def test_the_command_line():
    text = reference.command_line()
    assert "## selvedge link cut" in text and "## selvedge edge config" in text
    compare("cli.md", text)


def test_the_configuration():
    text = reference.configuration()
    assert "| `--data-dir` | `dataDir` | `SELVEDGE_DATA_DIR` |" in text
    compare("configuration.md", text)


def test_the_metrics(servers):
    text = reference.metrics(*servers)
    assert "`apiserver_storage_objects`" in text and "`selvedge_edges_connected`" in text
    compare("metrics.md", text)


def test_the_kinds(servers):
    text = reference.kinds(servers[0])
    assert "## EdgePlacement" in text and "`spec.locationSelectors[]" in text
    compare("kinds.md", text)
