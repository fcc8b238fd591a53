"""A center below a center: docs/how-to/hierarchy.md, every command in one shell."""
import os
import re
import signal
import subprocess

from center import ROOT, TOOLS, Center, binary
from edge import Edge


def test_the_page_says_what_works(tmp_path):
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/how-to/hierarchy.md").read_text(), re.M | re.S))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/selvedge").symlink_to(binary())
    top = Center(tmp_path / "top").start()
    env = {"PATH": f"{tmp_path}/bin:{TOOLS}:/usr/bin:/bin", "HOME": str(tmp_path), "TERM": "dumb", "KUBECONFIG": str(top.kubeconfig)}
    shell = None
    try:
        with (tmp_path / "out").open("w+") as out:
            # A session of its own: all that the page leaves running is ended with it.
            shell = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], env=env, cwd=tmp_path, stdout=out, stderr=subprocess.STDOUT,
                                     start_new_session=True)
            code = shell.wait(120)
        said = (tmp_path / "out").read_text()
        assert code == 0, said[-4000:]
        assert re.search(r"^till-\S+ +1/1 +Running", said, re.M), said[-4000:]
    finally:
        if shell:
            os.killpg(shell.pid, signal.SIGKILL)
        shop = Edge(top, tmp_path / ".data/shop-7", "shop-7", None)
        shop.end_containers()
        shop.forget_memory()
        top.kill()
