"""A short run of the torture; `make torture` is the long one."""
import os

import pytest

from torture import Torture


@pytest.mark.timeout(600)
@pytest.mark.parametrize("store,rounds", [("sqlite", 15), ("etcd", 3)])
def test_kill_and_restart(tmp_path, store, rounds):
    rounds = int(os.environ.get("TORTURE_ROUNDS", rounds))
    torture = Torture(tmp_path, store)
    failures = torture.run(rounds)
    assert not failures, f"seed {torture.seed}:\n" + "\n".join(failures[:10])
    assert len(torture.acks) > rounds, "the writers wrote next to nothing"
