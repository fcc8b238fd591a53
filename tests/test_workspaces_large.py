"""Workspaces with much in them, and many of them: their end survives kill, and an empty one costs next to nothing."""
import time

import pytest
from center import Center, Etcd
from manifests import configmap
from test_workspaces import TENANCY, at, delete, gone, left_over, make, maps, post_all, workspace


@pytest.mark.parametrize("store", ["sqlite", "etcd"])
def test_deletion_survives_kill(tmp_path, store):
    etcd = Etcd(tmp_path) if store == "etcd" else None
    center = Center(tmp_path / "data", store, etcd)
    try:
        center.start()
        for path in ("root:big", "root:big:inner", "root:kept"):
            make(center, path)
        where = [("root:big", 900), ("root:big:inner", 300), ("root:kept", 5)]
        assert post_all(center, [(maps(p), configmap(f"m{i}")) for p, n in where for i in range(n)]) == {201}
        delete(center, "root:big")
        remaining = []
        for _ in range(3):
            time.sleep(0.02)
            center.kill()
            center.start()
            remaining.append(len(left_over(center, "root:big")))
        print(f"remaining after each kill: {remaining}")
        gone(center, "root:big")
        assert left_over(center, "root:big") == []
        assert len(center.api("GET", maps("root:kept"))["items"]) == 6
        make(center, "root:big")
        assert len(left_over(center, "root:big")) == 4
    finally:
        center.kill()
        if etcd:
            etcd.stop()


def test_what_a_workspace_costs(tmp_path):
    """Resident memory of a thousand empty workspaces, after a restart: at most 50 KB for each. Also in a debug build."""
    center = Center(tmp_path / "data")
    try:
        center.start()
        make(center, "root:warm")
        center.stop()
        center.start()
        center.api("GET", f"{at('root:warm')}{TENANCY}/workspaces")
        before = center.rss()
        many = 1000
        begun = time.monotonic()
        assert post_all(center, [(f"{TENANCY}/workspaces", workspace(f"w{i}")) for i in range(many)]) == {201}
        took = time.monotonic() - begun
        grown = center.rss()
        center.stop()
        center.start()
        assert len(center.api("GET", f"{TENANCY}/workspaces")["items"]) == many + 2  # and root:espw
        each = (center.rss() - before) / many
        print(f"{each:.1f} KiB for each workspace, {(grown - before) / many:.1f} while they were made, {took / many * 1e3:.1f} ms to make one")
        assert each < 50, each
    finally:
        center.kill()
