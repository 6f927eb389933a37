"""The lease object in a store that others write to: it is signed, and an earlier one gives nobody the lease back."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import crypto
from appliance.ops import stores
from appliance.ops.fencing import record as records
from appliance.ops.fencing.keeper import LeaseKeeper
from appliance.ops.fencing.record import DamagedLease, Node
from appliance.ops.standby import holding
from appliance.ops.stores.base import Store
from appliance.settings.copies import Copies
from appliance.storage import send_lease


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Yield a store in a directory, with a key of the installation for this test."""
    key = crypto.loaded_key()
    crypto.use_key(b"k" * 32)
    (tmp_path / "store").mkdir()
    yield stores.open_store((tmp_path / "store").as_uri(), Copies())
    crypto.use_key(key)


def change(tmp_path: Path, **changes: object) -> None:
    """Change fields of the stored lease, as somebody without the key can."""
    path = tmp_path / "store" / "lease.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "changes", [{"blocks": []}, {"blocks": [[0, 2**62]]}, {"is_released": True}, {"epoch": 2**53}, {"signature": ""}]
)
def test_a_changed_lease_is_refused(changes: dict[str, object], store: Store, tmp_path: Path) -> None:
    """Without the key nobody can hide what may have left, or end or take the lease."""
    record = records.renew(records.make_first(Node("one"), 6), blocks=[(3, 5)])
    records.put_lease(store, record, None)
    fetched = records.fetch_lease(store)
    assert fetched is not None and fetched.record.blocks == [(3, 5)]
    change(tmp_path, **changes)
    with pytest.raises(DamagedLease, match="was changed in the storage"):
        records.fetch_lease(store)
    crypto.use_key(b"")
    with pytest.raises(DamagedLease, match=r"without secret\.key"):
        records.fetch_lease(store)


@pytest.mark.parametrize("is_missing", [False, True], ids=["earlier", "missing"])
def test_a_machine_that_lost_the_lease_does_not_take_it_again(is_missing: bool, store: Store, tmp_path: Path) -> None:
    """Neither its former lease, put back by somebody, nor a missing object lets it send beside the promoted machine."""
    directory = tmp_path / "data"
    directory.mkdir()
    records.save_node(directory, Node("one", epoch=1))
    path = tmp_path / "store" / "lease.json"
    mine = records.renew(records.make_first(Node("one", 1), 3), holder="before", is_released=True)
    records.put_lease(store, mine, None)
    earlier = path.read_bytes()
    path.unlink()
    records.put_lease(store, records.claim(mine, Node("two", 2), 3), None)
    keeper = LeaseKeeper(store, directory, 3, lambda: None)
    keeper.start()
    try:
        deadline = time.monotonic() + 10
        while records.load_node(directory).seen_epoch != 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        path.unlink()
        if not is_missing:
            path.write_bytes(earlier)
        end = time.monotonic() + 4.5  # longer than the lease
        while time.monotonic() < end:
            assert not send_lease.is_held()
            time.sleep(0.05)
        assert "another machine has taken the lease" in (send_lease.find_blocker() or "")
    finally:
        keeper.stop()
        send_lease.disregard()


def test_a_process_does_not_go_on_with_its_own_lease_of_before(store: Store, tmp_path: Path) -> None:
    """It has seen that another machine was promoted, and somebody puts back what this process wrote last."""
    keeper, path = LeaseKeeper(store, tmp_path, 6, lambda: None), tmp_path / "store" / "lease.json"
    send_lease.require("not yet", lambda: None)
    try:
        keeper._step()
        earlier = path.read_bytes()
        assert send_lease.is_held()
        fetched = records.fetch_lease(store)
        assert fetched is not None
        records.put_lease(store, records.claim(fetched.record, Node("two", 2), 6), fetched.etag)
        for content in (None, earlier, earlier):
            if content is not None:
                path.write_bytes(content)
            keeper._step()
            assert not send_lease.is_held() and "another machine" in (send_lease.find_blocker() or "")
    finally:
        send_lease.disregard()


def test_a_forgotten_block_is_reserved_again() -> None:
    """A message that is read while the lease without its block is on its way waits for the next one."""
    wakes = []

    def wake() -> None:
        wakes.append(send_lease.list_wanted())
        send_lease.extend(send_lease.now() + 60, send_lease.list_wanted())

    send_lease.require("not yet", wake)
    try:
        send_lease.touch([7])
        send_lease.extend(send_lease.now() + 60, [7])
        message_id = 7 * send_lease.BLOCK_IDS
        assert asyncio.run(send_lease.reserve([message_id])) and wakes == []
        time.sleep(0.02)
        assert send_lease.list_used(0.01) == set()  # what a renewal writes into the lease
        assert asyncio.run(send_lease.reserve([message_id])) and wakes == [{7}]
    finally:
        send_lease.disregard()


@pytest.mark.parametrize(
    ("behind_seconds", "is_exact"), [(-100, False), (-20, True), (0, True), (800, True), (900, False)]
)
def test_an_earlier_lease_does_not_say_what_has_left(behind_seconds: int, is_exact: bool) -> None:
    """A promotion with a lease from before the copy, or from long after it, holds all due messages."""
    copied_at = 1_000_000_000
    record = records.make_first(Node("one"), 30)
    lease = records.renew(record, renewed_at=copied_at + behind_seconds * 1000, kept_seconds=900)
    assert holding.has_all_blocks(lease, copied_at) is is_exact
