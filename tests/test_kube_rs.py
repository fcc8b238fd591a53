"""A kube-rs controller with streaming lists (tests/kube-controller) reconciles against the built binary."""
import os
import pathlib
import subprocess

import pytest

from center import binary


def test_controller_reconciles(center, ns):
    program = pathlib.Path(os.environ.get("KUBE_CONTROLLER_BIN") or pathlib.Path(binary()).with_name("kube-controller"))
    if not program.exists():
        pytest.fail(f"{program} is missing: 'make build' builds it")
    done = subprocess.run([program, ns], env={**os.environ, "KUBECONFIG": str(center.kubeconfig)},
                          capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
