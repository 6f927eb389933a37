"""Who reads a store learns sizes; who writes to it can delete, but not have anything restored that we did not make."""

import hashlib
import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from appliance.core import crypto
from appliance.ops.copies import catalog, fetch, keys, local
from appliance.ops.copies import manifest as manifests
from appliance.ops.copies.keys import ReadingKeys
from appliance.ops.copies.manifest import CopyManifest
from appliance.ops.fencing.mirror import MirrorReader
from appliance.ops.stores import base
from appliance.ops.stores.base import StoreError
from tests.copies.copy_rows import CopyHome
from tests.kit.s3_server import S3Server


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Return the directory of the store."""
    return tmp_path / "store"


def faults_of(home: CopyHome) -> list[str]:
    """Return what the operator is told about the copies."""
    with closing(home.open_store()) as store:
        state = local.read_state(local.folder_of(home.directory), store.url)
        return catalog.find_faults(catalog.list_copies(store, home.reader), state)


def test_a_reader_of_the_store_learns_sizes(home: CopyHome, store_path: Path) -> None:
    """No object has a plain or a compressed byte of the data, and no name tells a content."""
    home.add_lists(100, "a-name-of-a-list")
    home.create_copy()
    home.create_copy()
    secrets = [
        b"a-name-of-a-list",
        b"an offer an offer",
        b"SQLite format",
        (home.directory / "secret.key").read_bytes(),
    ]
    offer = (home.directory / "attachments" / "offer.pdf").read_bytes()
    names = {hashlib.new(kind, offer).hexdigest() for kind in ("sha256", "sha1", "md5", "blake2b")}
    for path in store_path.rglob("*"):
        assert "offer" not in path.name and path.name not in names
        if path.is_file():
            content = path.read_bytes()
            assert not any(secret.strip() in content for secret in secrets)
            assert content.startswith((b"age-encryption.org/v1\n", b"campanero copy 1\n"))


def test_the_machine_reads_manifests_but_no_old_data(home: CopyHome, tmp_path: Path) -> None:
    """With all that is on the machine, an old copy is listed, but not restored."""
    first = home.create_copy()
    home.settings = msgspec.structs.replace(home.settings, full_every="0s")
    home.create_copy()
    with closing(home.open_store()) as store:
        entries = catalog.list_copies(store, keys.catalog_reader())
        assert [entry.fault for entry in entries] == ["", ""]
        state = local.read_state(home.directory / "copies", store.url)
        held = [keys.catalog_identity(), *state.identities.values(), *(blob.identity for blob in state.blobs.values())]
        (tmp_path / "into").mkdir()
        with pytest.raises(fetch.DamagedCopy, match="cannot be decrypted: No matching keys"):
            fetch.fetch_copy(store, first, tmp_path / "into", ReadingKeys(held, [keys.own_signer()]))


def test_a_copy_of_an_attacker_is_not_used(home: CopyHome, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipients' keys are public, so anyone can encrypt to them; the signature tells who did."""
    manifest = home.create_copy()
    forged = msgspec.structs.replace(manifest, id=manifests.create_id(manifest.taken_at + 1000, "0" * 12), sequence=2)
    with monkeypatch.context() as other:
        other.setattr(crypto, "_key", bytes(32))
        content = manifests.seal_manifest(forged, home.settings.recipients)
    (store_path / "copies" / forged.id).mkdir()
    (store_path / "copies" / forged.id / "manifest").write_bytes(content)
    assert home.copies() == [manifest]
    [fault] = faults_of(home)
    assert forged.id in fault and "which is not trusted" in fault
    # With the public key of the installation, the signature of another is wrong
    own = content[:17] + keys.own_signer() + content[49:]
    (store_path / "copies" / forged.id / "manifest").write_bytes(own)
    [fault] = faults_of(home)
    assert "was changed after it was made" in fault


def test_a_store_full_of_manifests(home: CopyHome, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing ends with an error if others have written more than copies can have."""
    manifest = home.create_copy()
    for number in range(3):
        folder = store_path / "copies" / manifests.create_id(manifest.taken_at + 1000, f"{number:012x}")
        folder.mkdir()
        (folder / "manifest").write_bytes(b"x" * 100)
    assert len(faults_of(home)) == 3
    for name, limit, words in (
        ("MAX_MANIFESTS", 3, "more than 3 manifests"), ("MAX_UNUSABLE_BYTES", 299, "of unusable manifests"),
    ):  # fmt: skip
        with monkeypatch.context() as limited:
            limited.setattr(catalog, name, limit)
            with pytest.raises(base.StoreError, match=words):
                faults_of(home)


@pytest.mark.parametrize("moment", ["99999999T999999Z", "20260230T000000Z", "00000000T000000Z", "20260101T240000Z"])
def test_a_manifest_of_no_time(home: CopyHome, store_path: Path, moment: str) -> None:
    """An object in the place of a manifest, whose id begins with no time, is no copy and hides none."""
    manifest = home.create_copy()
    folder = store_path / "copies" / f"{moment}-{0:012x}"
    folder.mkdir()
    (folder / "manifest").write_bytes(b"x" * 100)
    assert home.copies() == [manifest] and faults_of(home) == []


def test_manifests_cannot_be_swapped_or_changed(home: CopyHome, store_path: Path) -> None:
    """A manifest under the id of another copy, or with one changed bit, is not that copy."""
    first, second = home.create_copy(), home.create_copy()
    paths = [store_path / manifests.manifest_key(copy.id) for copy in (first, second)]
    contents = [path.read_bytes() for path in paths]
    paths[1].write_bytes(contents[0])
    assert home.copies() == [first]
    assert any(f"{second.id} was changed" in fault for fault in faults_of(home))
    for position in (3, 30, 60, 200, len(contents[1]) - 1):
        changed = bytearray(contents[1])
        changed[position] ^= 4
        paths[1].write_bytes(changed)
        assert home.copies() == [first]
    for content in (b"", b"x", contents[1][:100], contents[1] + b"x"):
        paths[1].write_bytes(content)
        assert home.copies() == [first]
    # A copy of the manifest under a later id does not make an old copy the newest
    later = manifests.create_id(second.taken_at + 60_000, "f" * 12)
    (store_path / "copies" / later).mkdir()
    (store_path / "copies" / later / "manifest").write_bytes(contents[0])
    paths[1].write_bytes(contents[1])
    assert home.copies() == [second, first]


def _expect_damaged(home: CopyHome, copy: CopyManifest, into: Path, words: str) -> None:
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    with closing(home.open_store()) as store, pytest.raises(fetch.DamagedCopy, match=words):
        fetch.fetch_copy(store, copy, into, home.reader)


def test_objects_cannot_be_mixed(home: CopyHome, store_path: Path, tmp_path: Path) -> None:
    """Segments and files of one copy do not pass as those of another, or of the same."""
    home.add_lists(100, "first")
    (home.directory / "attachments" / "other.pdf").write_bytes(b"another offer " * 5000)
    first = home.create_copy()
    home.settings = msgspec.structs.replace(home.settings, full_every="0s")
    home.add_lists(100, "second")
    second = home.create_copy()
    newest = store_path / second.segments[0].key
    kept = newest.read_bytes()
    shutil.copy(store_path / first.segments[0].key, newest)
    _expect_damaged(home, second, tmp_path / "into", "was changed in the storage")
    newest.write_bytes(kept)
    by_name = {file.name: store_path / file.blob.key for file in second.files}
    offer = by_name["attachments/offer.pdf"].read_bytes()
    shutil.copy(by_name["attachments/other.pdf"], by_name["attachments/offer.pdf"])
    _expect_damaged(home, second, tmp_path / "into", "differs from the manifest")
    by_name["attachments/offer.pdf"].write_bytes(offer + bytes(1 << 20))
    _expect_damaged(home, second, tmp_path / "into", "offer")
    by_name["attachments/offer.pdf"].write_bytes(offer)
    home.fetch(second, tmp_path / "whole")


def test_a_base_cannot_be_replaced(home: CopyHome, store_path: Path, tmp_path: Path) -> None:
    """A differential copy names its full copy by the checksum of its manifest."""
    first, second = home.create_copy(), home.create_copy()
    path = store_path / manifests.manifest_key(first.id)
    # Even we cannot replace it: the same manifest, encrypted and signed anew
    path.write_bytes(manifests.seal_manifest(first, home.settings.recipients))
    _expect_damaged(home, second, tmp_path / "into", "was replaced by another")
    assert any("was replaced by another" in fault for fault in faults_of(home))
    path.unlink()
    _expect_damaged(home, second, tmp_path / "into", "that .* builds on")
    assert any(f"the full copy {first.id} that it builds on is missing" in fault for fault in faults_of(home))


def test_a_rollback_is_noticed_where_it_can_be(home: CopyHome, store_path: Path) -> None:
    """The machine misses its newest copy; anyone is told that the newest one is older than its interval."""
    first, second = home.create_copy(), home.create_copy()
    shutil.rmtree(store_path / "copies" / second.id)
    assert faults_of(home) == [f"the newest copy {second.id} is missing: it was deleted by others than this machine"]
    assert catalog.describe_age(first) is None
    old = msgspec.structs.replace(first, taken_at=first.taken_at - 9 * 86_400_000)
    assert "9.0 days old, although one was made every 24 hours" in (catalog.describe_age(old) or "")
    # The next copy does not hide it
    third = home.create_copy()
    assert (third.sequence, third.previous) == (3, second.id)


def test_names_that_lead_elsewhere(home: CopyHome, tmp_path: Path) -> None:
    """A manifest with a path outside of the data directory is rejected before anything is written."""
    manifest = home.create_copy()
    for name in ("../x", "/etc/x", "attachments/../../x", "campanero.toml", "campanero.db", "attachments"):
        hostile = msgspec.structs.replace(manifest, files=[msgspec.structs.replace(manifest.files[0], name=name)])
        _expect_damaged(home, hostile, tmp_path / "into", "not a copy of Campanero")
        assert list((tmp_path / "into").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no line that begins"), ("AGE-SECRET-KEY-1x", "must begin with"),
        ("AGE-SECRET-KEY-1" + "Q" * 58, "not the private key"), ("# signer: ed25519:x\nx", "the signer must have"),
    ],
)  # fmt: skip
def test_unusable_recovery_keys(text: str, words: str) -> None:
    """A text that is not a recovery key says why, and never quotes the key."""
    with pytest.raises(keys.UnusableKey, match=words) as raised:
        keys.parse_recovery_key(text)
    assert "QQQQ" not in str(raised.value)


def test_recipients_must_be_public_keys(home: CopyHome) -> None:
    """A private key or another text as recipient is rejected before anything is made."""
    for recipient in (home.identity, "age1x", "ssh-ed25519 AAAA", "", "age1pq1x"):
        with pytest.raises(keys.UnusableKey, match="public key of an age identity"):
            keys.parse_recipients([recipient])


def test_the_catalog_identity_is_a_key_of_age(home: CopyHome) -> None:
    """It is derived from the installation's key, and each of its kind can be read by age."""
    assert keys.catalog_identity() == keys.catalog_identity()
    assert keys.public_key(keys.catalog_identity()).startswith("age1")


def test_a_foreign_object_is_downloaded_once(home: CopyHome, bucket: S3Server, tmp_path: Path) -> None:
    """A second machine looks for new files each five seconds, and a bucket charges for what it reads."""
    with closing(bucket.open_store()) as store:
        reader = MirrorReader(store, tmp_path / "files")
        for content, downloads in ((b"x" * 1000, 1), (b"x" * 1000, 0), (b"y" * 1000, 1)):
            if bucket.objects().get("files/a") != content:
                bucket.replace("files/a", content)
            bucket.requests.clear()
            with pytest.raises(StoreError, match="was changed in the storage"):
                reader.fetch()
            assert [key for _, key, _ in bucket.requests].count("files/a") == downloads
