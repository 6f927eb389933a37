"""Copies: what they consist of, who can read them, and what comes back of them."""

from pathlib import Path

import pytest

from appliance.ops.copies import local
from tests.copies.copy_rows import CopyHome, list_names
from tests.kit.s3_server import S3Server


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_full_and_differential_copies_come_back_whole(
    home: CopyHome, bucket: S3Server, tmp_path: Path, kind: str
) -> None:
    """The first copy is full, the next has the changed pages, and each comes back as the database was."""
    if kind == "s3":
        home.settings = bucket.settings(recipients=home.settings.recipients)
    home.add_lists(3000, "first")
    first = home.create_copy()
    names = list_names(home.directory / "campanero.db")
    home.add_lists(20, "second")
    second = home.create_copy()
    assert (first.kind, first.sequence, first.previous) == ("full", 1, None)
    assert (second.kind, second.base, second.sequence, second.previous) == ("differential", first.id, 2, first.id)
    assert second.size < first.size / 5
    assert second.counts["contact_list"] == first.counts["contact_list"] + 20
    assert home.copies() == [second, first]
    later_names = list_names(home.directory / "campanero.db")
    assert len(later_names) == len(names) + 20
    assert list_names(home.fetch(first, tmp_path / "first") / "campanero.db") == names
    fetched = home.fetch(second, tmp_path / "second")
    assert list_names(fetched / "campanero.db") == later_names
    for name in ("secret.key", "attachments/offer.pdf"):
        assert (fetched / name).read_bytes() == (home.directory / name).read_bytes()
    assert sorted(path.name for path in fetched.iterdir()) == ["attachments", "campanero.db", "secret.key"]


def test_the_machine_reads_its_newest_copy_only(home: CopyHome, tmp_path: Path) -> None:
    """The throw-away identities of the newest copy and its base are kept; of a new full copy, only its own."""
    home.add_lists(300, "first")
    first = home.create_copy()
    assert local.proof_keys(home.directory, first) is not None
    second = home.create_copy()
    reader = local.proof_keys(home.directory, second)
    assert local.proof_keys(home.directory, first) is None and reader is not None
    fetched = home.fetch(second, tmp_path / "proof", reader)
    assert (fetched / "attachments" / "offer.pdf").stat().st_size == 45_000
    home.settings = type(home.settings)(store=home.settings.store, recipients=home.settings.recipients, full_every="0s")
    third = home.create_copy()
    assert third.kind == "full" and local.proof_keys(home.directory, second) is None
    home.fetch(third, tmp_path / "third", local.proof_keys(home.directory, third))
