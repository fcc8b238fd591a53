"""An edge whose user may do nothing special: no ports below 1024, no control groups. What runs there must find the API all the same."""
import os
import pathlib
import shutil
import tempfile

import pytest
from center import Center, binary, wait_for
from edge import Edge

NOBODY = 65534
# As any client in a cluster finds the API and says who it is.
ASK = """
account=$SELVEDGE_ROOT/var/run/secrets/kubernetes.io/serviceaccount
exec curl -s --cacert $account/ca.crt -H "Authorization: Bearer $(cat $account/token)" \
  https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/default/pods
"""


@pytest.fixture
def edge():
    base = pathlib.Path(tempfile.mkdtemp(prefix="selvedge-"))
    base.chmod(0o755)
    # Where it was built may be closed to others.
    program = shutil.copy(binary(), base / "selvedge")
    center = Center(base / "center")
    florin = Edge(center, base / "florin", args=["--runtime", "process"])
    florin.base[0] = str(program)
    if os.getuid() == 0:
        florin.data_dir.mkdir()
        os.chown(florin.data_dir, NOBODY, NOBODY)
        florin.base = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *florin.base]
    try:
        center.start()
        yield florin.start().wait_connected()
    finally:
        florin.kill()
        florin.end_containers()
        florin.forget_memory()
        center.kill()
        shutil.rmtree(base, ignore_errors=True)


def test_a_pod_finds_the_api(edge, tmp_path):
    kubectl = edge.tools(tmp_path).kubectl
    kubectl("run", "clock", "--image=selvedge.dev/sample/clock")
    kubectl("wait", "--for=condition=Ready", "pod/clock")
    said = wait_for("an answer", lambda: kubectl("exec", "clock", "--", "sh", "-c", ASK, code=None), 30)
    assert 'User \\"system:serviceaccount:default:default\\" cannot list resource \\"pods\\"' in said, said
