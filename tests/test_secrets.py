"""Secrets at rest: nothing plain in files, rotation that survives everything, and clear words when the key is missing."""
import base64
import json
import os
import pathlib
import random
import re
import subprocess
import time
import urllib.request

import pytest

from center import ROOT, Center, Etcd, Tools, binary, wait_for
from test_faults import refused

PATH = "/api/v1/namespaces/default/secrets"
PLAIN = "the-loom-is-in-the-cellar"


def secret(name, text=PLAIN, **labels):
    data = base64.b64encode(text.encode()).decode()
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": {"where": data}}


def shown(center, *texts):
    """Which of the texts can be seen anywhere in the store's files: the database, its log, free pages."""
    raw = b"".join(p.read_bytes() for p in (center.data_dir / "store").iterdir())
    journal = center.data_dir / "store/store.journal"
    if journal.exists():
        # Its content lies in sectors of 512 bytes, behind 32 bytes of each.
        data = journal.read_bytes()
        raw += b"".join(data[at + 32:at + 512] for at in range(0, len(data), 512))
    return [t for t in texts if (t if isinstance(t, bytes) else t.encode()) in raw]


def forms(text=PLAIN):
    return text, base64.b64encode(text.encode()).decode()


def read(center, name):
    return base64.b64decode(center.api("GET", f"{PATH}/{name}")["data"]["where"]).decode()


def keys(center):
    lines = [line.split() for line in (center.data_dir / "pki/secrets.key").read_text().splitlines() if not line.startswith("#")]
    return [(role, bytes.fromhex(id_)) for role, id_, _ in lines]


def selvedge(*args, code=0):
    done = subprocess.run([binary(), *map(str, args)], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def center(tmp_path):
    center = Center(tmp_path / "data")
    yield center
    center.kill()


def test_nothing_plain_is_in_the_files(center, tmp_path):
    center.start()
    tools = Tools(center, tmp_path / "home")
    center.api("POST", PATH, secret("a"))
    tools.kubectl("create", "secret", "generic", "b", f"--from-literal=x={PLAIN}")
    center.api("PATCH", f"{PATH}/a", {"data": {"more": base64.b64encode(b"and-the-key-under-the-mat").decode()}},
               content_type="application/merge-patch+json")
    assert not shown(center, *forms(), *forms("and-the-key-under-the-mat")), "while running, with its write-ahead log"
    assert shown(center, "core/secrets/root/default/a"), "the place itself is not sealed"
    center.stop()
    assert not shown(center, *forms(), *forms("and-the-key-under-the-mat"))
    assert (center.data_dir / "pki/secrets.key").stat().st_mode & 0o077 == 0
    center.start()
    assert read(center, "a") == PLAIN
    assert tools.json("get", "secret", "b")["data"]["x"] == forms()[1]


def test_other_resources_and_none(tmp_path):
    center = Center(tmp_path / "data", args=["--encrypt-resources", "configmaps"])
    try:
        center.start()
        center.api("POST", PATH, secret("a"))
        center.api("POST", "/api/v1/namespaces/default/configmaps",
                   {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"x": "a-quiet-map"}})
        assert shown(center, forms()[1]) and not shown(center, "a-quiet-map")
        center.stop()
        center.command[-1] = "secrets"
        center.start()
        assert center.api("GET", "/api/v1/namespaces/default/configmaps/c")["data"]["x"] == "a-quiet-map"
        # What lies there plain from before is sealed by a rotation, and what need not be sealed any more is not.
        selvedge("secrets", "rotate", "--data-dir", center.data_dir)
        assert not shown(center, forms()[1]) and shown(center, "a-quiet-map")
        assert read(center, "a") == PLAIN
    finally:
        center.kill()


def test_rotation_with_and_without_a_running_center(center):
    center.start()
    for i in range(30):
        center.api("POST", PATH, secret(f"s{i}"))
    [(_, first)] = keys(center)
    assert shown(center, first)
    said = selvedge("secrets", "rotate", "--data-dir", center.data_dir)
    [(role, second)] = keys(center)
    assert role == "seals" and second != first and second.hex() in said
    assert shown(center, second) and not shown(center, first), "no value of the old key is left in any file"
    assert all(read(center, f"s{i}") == PLAIN for i in range(30))
    center.api("POST", PATH, secret("new"))
    center.stop()

    selvedge("secrets", "rotate", "--data-dir", center.data_dir, "--prepare")
    assert [role for role, _ in keys(center)] == ["seals", "next"]
    assert "waits" in selvedge("secrets", "status", "--data-dir", center.data_dir)
    said = selvedge("secrets", "rotate", "--data-dir", center.data_dir)
    [(_, third)] = keys(center)
    # With the keys of the four exports that a center has.
    assert third not in (first, second) and "35 values" in said, said
    assert shown(center, third) and not shown(center, first, second)
    center.start()
    assert all(read(center, n) == PLAIN for n in ("s0", "s29", "new"))


def begun(center, dice):
    """Until a rotation has begun, and a little longer: it takes milliseconds or seconds, as the machine has it."""
    deadline = time.monotonic() + 5
    while len(keys(center)) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(dice.choice((0, 0, dice.uniform(0, 0.05), dice.uniform(0, 0.5))))


def test_rotation_is_resumed_wherever_it_is_killed(center):
    """kill -9 at any moment, again and again, while others write; nothing is lost and it ends."""
    rounds = int(os.environ.get("SECRETS_ROUNDS", "4"))
    center.start()
    names = [f"s{i}" for i in range(400)]
    for name in names:
        center.api("POST", PATH, secret(name))
    dice = random.Random(7)
    interrupted = 0
    for round_ in range(rounds):
        if dice.random() < 0.5:
            # The center does it.
            rotate = subprocess.Popen([binary(), "secrets", "rotate", "--data-dir", str(center.data_dir)],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            begun(center, dice)
            center.kill()
            interrupted += len(keys(center)) > 1
            rotate.kill()
            rotate.wait(30)
        else:
            # The command does it.
            center.kill()
            rotate = subprocess.Popen([binary(), "secrets", "rotate", "--data-dir", str(center.data_dir)],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            begun(center, dice)
            rotate.kill()
            rotate.wait(30)
            interrupted += len(keys(center)) > 1
        center.start()
        items = center.api("GET", PATH)["items"]
        found = {o["metadata"]["name"]: base64.b64decode(o["data"]["where"]).decode() for o in items}
        assert found == dict.fromkeys(names, PLAIN), f"round {round_}"
        wait_for("the rotation to end", lambda: len(keys(center)) == 1, 30)
        [(_, current)] = keys(center)
        raw = b"".join(p.read_bytes() for p in (center.data_dir / "store").iterdir())
    journal = center.data_dir / "store/store.journal"
    if journal.exists():
        # Its content lies in sectors of 512 bytes, behind 32 bytes of each.
        data = journal.read_bytes()
        raw += b"".join(data[at + 32:at + 512] for at in range(0, len(data), 512))
        assert set(re.findall(rb"\0SEAL1(.{8})", raw, re.S)) == {current}, f"round {round_}: values of old keys are left"
    assert interrupted, "no kill hit a rotation: the test proves nothing"


def test_a_missing_or_wrong_key_says_what_to_do(center, tmp_path):
    center.start()
    center.api("POST", PATH, secret("a"))
    center.stop()
    file = center.data_dir / "pki/secrets.key"
    good = file.read_text()
    run = ["--data-dir", center.data_dir, "--listen", "127.0.0.1:0"]
    file.unlink()
    said = refused(*run)
    assert str(file) in said and "missing" in said and "--secrets-key-file" in said, said
    assert not file.exists()
    other = Center(tmp_path / "other")
    other.start()
    other.stop()
    file.write_text((other.data_dir / "pki/secrets.key").read_text())
    said = refused(*run)
    assert "the value of core/secrets/root" in said and "not in the key file" in said and "copy" in said, said
    file.write_text(good.replace("seals", "sails"))
    assert "damaged" in refused(*run)
    # Elsewhere it is as good.
    file.unlink()
    moved = tmp_path / "vault.key"
    moved.write_text(good)
    center.command += ["--secrets-key-file", str(moved)]
    center.start()
    assert read(center, "a") == PLAIN and not file.exists()


def test_moved_values_do_not_open(center):
    import sqlite3
    center.start()
    center.api("POST", PATH, secret("rich", "gold"))
    center.api("POST", PATH, secret("poor", "crumbs"))
    center.stop()
    db = sqlite3.connect(center.data_dir / "store/store.db")
    where = "key = 'core/secrets/root/default/%s'"
    db.execute(f"update log set value = (select value from log where {where % 'rich'}) where {where % 'poor'}")
    db.commit()
    db.close()
    said = refused("--data-dir", center.data_dir, "--listen", "127.0.0.1:0")
    assert "core/secrets/root/default/poor" in said and "moved" in said, said


def test_two_centers_over_one_etcd_share_the_key(tmp_path):
    etcd = Etcd(tmp_path)
    one = Center(tmp_path / "one", "etcd", etcd)
    two = Center(tmp_path / "two", "etcd", etcd)
    raw = lambda: range_of(etcd)
    try:
        one.start()
        one.api("POST", PATH, secret("a"))
        assert forms()[1].encode() not in raw() and b"SEAL1" in raw()
        said = refused("--data-dir", two.data_dir, "--listen", "127.0.0.1:0", "--store", "etcd", "--etcd-endpoints", etcd.endpoint)
        assert "another center" in said, said
        (two.data_dir / "pki").mkdir(parents=True)
        copy = lambda: (two.data_dir / "pki/secrets.key").write_text((one.data_dir / "pki/secrets.key").read_text())
        copy()
        two.start()
        assert read(two, "a") == PLAIN
        # As the page says: prepare, copy, rotate everywhere, remove the old key.
        at_etcd = ["--store", "etcd", "--etcd-endpoints", etcd.endpoint]
        selvedge("secrets", "rotate", "--prepare", "--data-dir", one.data_dir, *at_etcd)
        copy()
        selvedge("secrets", "rotate", "--data-dir", one.data_dir, *at_etcd)
        new, old = [id_ for _, id_ in keys(one)]
        wait_for("the first center to seal everything anew", lambda: new in raw() and old not in raw(), 20)
        assert read(two, "a") == PLAIN
        two.api("POST", PATH, secret("late"))
        assert read(one, "late") == PLAIN, "the second still seals with the old key, which the first still knows"
        copy()
        wait_for("the second center to follow", lambda: old not in raw(), 20)
        assert read(one, "late") == read(two, "late") == PLAIN
        assert one.alive() and two.alive()
    finally:
        one.kill()
        two.kill()
        etcd.stop()


def range_of(etcd):
    """All values in etcd, as they lie there now."""
    everything = json.dumps({"key": base64.b64encode(b"/").decode(), "range_end": base64.b64encode(b"0").decode()})
    ask = urllib.request.Request(etcd.endpoint + "/v3/kv/range", everything.encode(), {"Content-Type": "application/json"})
    found = json.load(urllib.request.urlopen(ask, timeout=30))
    return b"".join(base64.b64decode(kv.get("value", "")) for kv in found.get("kvs", []))


def test_the_page(tmp_path):
    """The commands in docs/how-to/secrets.md, as they stand there."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/how-to/secrets.md").read_text(), re.M | re.S)
    assert blocks
    (tmp_path / ".data").mkdir()
    center = Center(tmp_path / ".data/center")
    try:
        center.start()
        center.api("POST", PATH, secret("a"))
        env = {**os.environ, "PATH": f"{pathlib.Path(binary()).parent}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-exuo", "pipefail", "-c", "\n".join(blocks)], cwd=tmp_path, env=env,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert read(center, "a") == PLAIN
    finally:
        center.kill()
