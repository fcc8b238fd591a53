"""Pages whose commands are run, and whose shown output is compared with the real one.

A block of `sh` is run. A block of `text` right after it is its output: the parts that are the same each time are
compared, and a line that is only `…` stands for any lines. `UPDATE_DOCS=1` puts the real output in."""
import os
import re
import subprocess

from center import ROOT, TOOLS, binary

BLOCK = re.compile(r"^```sh\n(?P<script>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.M | re.S)
# Parts of an output that differ from run to run.
VARIABLE = [
    (re.compile(r"\b\d+(\.\d+)?(ms|s|m|h|d)(\d+(ms|s|m|h))*\b"), "<time>"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+(:\d+)?\b"), "<address>"),
    (re.compile(r"-[a-z0-9]{8,10}(-[a-z0-9]{5})?\b"), "-<hash>"),
    (re.compile(r"\bv?\d+\.\d+\.\d+\S*"), "<version>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "<date>"),
    (re.compile(r"\b\d+(\.\d+)? ([mhd]|s)\b"), "<time>"),
    # A reader may have tried something else before.
    (re.compile(r"\b\d+ objects?\b"), "<count> objects"),
]


def stable(line):
    for pattern, instead in VARIABLE:
        line = pattern.sub(instead, line)
    return " ".join(line.split())


def agrees(shown, real):
    """Whether the lines that are shown are those of the real output. `…` alone in a line is any number of lines."""
    shown = [stable(line) for line in shown.strip().splitlines()]
    real = [stable(line) for line in real.strip().splitlines()]

    def matches(i, j):
        if i == len(shown):
            return j == len(real)
        if shown[i] == "…":
            return any(matches(i + 1, k) for k in range(j, len(real) + 1))
        return j < len(real) and shown[i] == real[j] and matches(i + 1, j + 1)

    return matches(0, 0)


def run(page, data, home, at_least):
    """All blocks of a page in one shell, as a reader has; only where the data and the program lie differs."""
    text = (ROOT / page).read_text()
    found = list(BLOCK.finditer(text))
    assert len(found) >= at_least, f"{page} has {len(found)} blocks"
    mark = "@@ block"
    script = "exec 9>&2 2>&1; BASH_XTRACEFD=9; shopt -s expand_aliases\n"
    script += "\n".join(f"echo '{mark}'\n{block['script']}" for block in found)
    script = re.sub(r"(\$PWD/)?\.data/", f"{data}/", script).replace("$PWD/target/local/selvedge", binary())
    env = {"PATH": f"{TOOLS}:/usr/bin:/bin", "HOME": str(home), "TERM": "dumb"}
    done = subprocess.run(["bash", "-exuo", "pipefail", "-c", script], cwd=ROOT, env=env, capture_output=True,
                          text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    outputs = done.stdout.replace(f"{data}/", ".data/").replace(binary(), "selvedge").split(f"{mark}\n")[1:]
    compare(page, text, found, outputs)
    return done.stdout


def compare(page, text, found, outputs):
    for block, real in reversed(list(zip(found, outputs))):
        if block["shown"] is None or agrees(block["shown"], real):
            continue
        assert os.environ.get("UPDATE_DOCS"), f"{page} shows\n{block['shown']}\nand the commands print\n{real}"
        start, end = block.span("shown")
        real = "".join(f"{line.rstrip()}\n" for line in real.strip().splitlines())
        text = text[:start] + real + text[end:]
        (ROOT / page).write_text(text)
