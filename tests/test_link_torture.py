"""A short run of the link's torture; `make link-torture` is the long one."""
import os

import pytest

from link_torture import LinkTorture


@pytest.mark.timeout(900)
def test_faults_of_link_center_and_edges(tmp_path):
    rounds = int(os.environ.get("LINK_ROUNDS", 6))
    torture = LinkTorture(tmp_path)
    failures = torture.run(rounds)
    assert not failures, f"seed {torture.seed}:\n" + "\n".join(failures[:10])
    assert torture.writes > rounds and sum(w.events for w in torture.watchers) > rounds
