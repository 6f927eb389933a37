"""A copy as the source of a restore: the keys of the reader, the choice by time, and the files (docs/promises.md, P11).

Nothing in a store is trusted before its signature is verified. The key that verifies it comes from the operator (the
recovery key, or the option `--signer`), or from the installation in the data directory.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from appliance.core import clock, crypto
from appliance.ops import stores
from appliance.ops.backups import archive
from appliance.ops.backups.archive import DamagedArchive, Manifest
from appliance.ops.copies import catalog, fetch, keys, local
from appliance.ops.copies import manifest as manifests
from appliance.ops.copies.catalog import CopyEntry
from appliance.ops.copies.keys import ReadingKeys
from appliance.ops.copies.manifest import RECOVERY, CopyManifest
from appliance.ops.stores.base import Store, StoreError
from appliance.settings.copies import Copies

# Trying a passphrase takes seconds for each recovery key, and anyone who can write to the store can add some.
_MAX_RECOVERY_KEYS = 10
_MAX_RECOVERY_BYTES = 65_536


class RestoreRefused(Exception):
    """No copy can be listed or chosen; the message is the reason."""


@contextmanager
def open_source(
    url: str,
    settings: Copies,
    directory: Path,
    identity_file: Path | None,
    signer: str | None,
    read_passphrase: Callable[[], str],
) -> Iterator["CopySource"]:
    """Yield the copies in a store, read with the operator's keys.

    Without an identity file, a recovery key in the store is opened with the passphrase that `read_passphrase` returns.
    `signer` is the value of `--signer`, or None. Raises RestoreRefused.
    """
    try:
        with closing(stores.open_store(url, settings)) as store:
            reader = _read_keys(store, directory, identity_file, signer, read_passphrase)
            entries = catalog.list_copies(store, reader)
            if not reader.signers:
                raise RestoreRefused(_ask_for_signer(entries))
            yield CopySource(store, entries, reader, _find_faults(entries, directory, store))
    except (StoreError, keys.UnusableKey) as error:
        raise RestoreRefused(str(error)) from None


def _read_keys(
    store: Store,
    directory: Path,
    identity_file: Path | None,
    signer: str | None,
    read_passphrase: Callable[[], str],
) -> ReadingKeys:
    if identity_file is not None:
        try:
            text = identity_file.read_text()
        except UnicodeDecodeError:
            raise RestoreRefused(f"{identity_file} is not a recovery key") from None
        reader = keys.parse_recovery_key(text)
    else:
        reader = _open_recovery_key(store, read_passphrase)
    signers = list(reader.signers)
    if signer is not None:
        signers = [keys.parse_signer(signer)]  # the operator's word counts more than that of a file
    elif not signers and (directory / crypto.KEY_FILE).exists():
        crypto.load_key(directory)
        signers = [keys.own_signer()]
    return reader._replace(signers=signers)


def _open_recovery_key(store: Store, read_passphrase: Callable[[], str]) -> ReadingKeys:
    """Return the keys of all recovery keys in the store that the passphrase opens. Raises RestoreRefused for none."""
    names = sorted(store.list(RECOVERY), key=lambda info: info.modified_ms, reverse=True)[:_MAX_RECOVERY_KEYS]
    if not names and not next(iter(store.list(manifests.COPIES)), None):
        raise RestoreRefused(f"{store.url} has no copies: check the address, and the folder in it")
    if not names:
        raise RestoreRefused(
            f"{store.url} has no recovery key that a passphrase opens: give the file with your key by --identity"
        )
    passphrase = read_passphrase()
    if not passphrase:
        raise RestoreRefused("no passphrase: type it, write it to the first line of stdin, or use --identity FILE")
    readers = [
        reader
        for info in names
        if (reader := keys.open_protected_key(_read_small(store, info.key), passphrase)) is not None
    ]
    if not readers:
        raise RestoreRefused("the passphrase opens none of the recovery keys in the storage")
    identities = [identity for reader in readers for identity in reader.identities]
    return ReadingKeys(identities, list(dict.fromkeys(signer for reader in readers for signer in reader.signers)))


def _read_small(store: Store, key: str) -> bytes:
    return manifests.read_object(store, key, _MAX_RECOVERY_BYTES)


def _ask_for_signer(entries: list[CopyEntry]) -> str:
    signers = list(dict.fromkeys(keys.format_signer(entry.signer) for entry in entries if entry.signer))
    words = f"the copies there were signed by {' and by '.join(signers[:3])}" if signers else "there are no copies"
    return (
        f"the recovery key does not say who signed the copies, and {words}. Compare this with what you have noted, and "
        "give it by --signer: a person with access to the storage can sign copies with another key"
    )


def _find_faults(entries: list[CopyEntry], directory: Path, store: Store) -> list[str]:
    """Return a sentence for each problem with the copies, also if the newest one is old."""
    has_state = (directory / local.FOLDER).is_dir()
    state = local.read_state(directory / local.FOLDER, store.url) if has_state else None
    faults = catalog.find_faults(entries, state)
    newest = next((entry.manifest for entry in entries if entry.manifest), None)
    age = catalog.describe_age(newest) if newest else None
    return [*faults, *([age] if age else [])]


class CopySource:
    """A chosen copy, in the form that `backups.restore.restore_from` takes."""

    name: str
    manifest: Manifest

    def __init__(self, store: Store, entries: list[CopyEntry], reader: ReadingKeys, faults: list[str]) -> None:
        self.entries, self.faults, self.lost_files = entries, faults, list[str]()
        self._store, self._reader = store, reader
        self._copy: CopyManifest | None = None
        self._skip_lost_files = False
        self._report: Callable[[str, float], None] = lambda words, part: None

    def choose(self, at: str, skip_lost_files: bool, report_progress: Callable[[str, float], None]) -> None:
        """Choose the copy to restore: `latest`, its id, or the last one at or before a time. Raises RestoreRefused."""
        usable = [entry.manifest for entry in self.entries if entry.manifest]
        if not usable:
            raise RestoreRefused("there is no copy that can be read with these keys")
        if at == "latest":
            copy: CopyManifest | None = usable[0]
        elif re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{12}", at):
            copy = next((copy for copy in usable if copy.id == at), None)
        else:
            moment = _parse_time(at)
            copy = max(
                (copy for copy in usable if copy.taken_at <= moment), key=lambda copy: copy.taken_at, default=None
            )
        if copy is None:
            raise RestoreRefused(f"there is no copy {at}, or none that old; the oldest is {usable[-1].id}")
        self._copy, self._skip_lost_files, self._report = copy, skip_lost_files, report_progress
        self.name = copy.id
        self.manifest = Manifest(
            archive.FORMAT, copy.version, copy.schema, copy.taken_at, copy.key, True, copy.journal
        )  # fmt: skip

    def unpack(self, into: Path) -> None:
        """Fetch the copy. Raises DamagedArchive, also if the store cannot be reached."""
        assert self._copy is not None, "chosen before"
        try:
            self.lost_files = fetch.fetch_copy(
                self._store, self._copy, into, self._reader, self._report, self._skip_lost_files
            )
        except (fetch.DamagedCopy, StoreError) as error:
            raise DamagedArchive(f"{self.name}: {error}") from None

    def authenticate(self) -> None:
        """Raise DamagedArchive unless the copy was signed with the loaded key of the installation."""
        if keys.own_signer() not in self._reader.signers:
            raise DamagedArchive(f"{self.name} was not signed by the installation whose key it contains")


def _parse_time(text: str) -> int:
    """Return a time in ISO 8601 as milliseconds. Without a time zone it is in UTC; a date means the end of its day."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise RestoreRefused(
            f"--at {text[:60]} is not a time: use latest, the id of a copy, or such as 2026-11-28T17:00Z"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    end_of_day = clock.DAY_MS - 1 if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) else 0
    return int(moment.timestamp() * 1000) + end_of_day
