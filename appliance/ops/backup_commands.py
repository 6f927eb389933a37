"""The commands `backup`, `restore` and `copies`."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.accounts import settings as stored_settings
from appliance.core import clock, crypto, data_dir
from appliance.core.errors import Refused
from appliance.ops import stores
from appliance.ops.backups import archive
from appliance.ops.backups import create as backups
from appliance.ops.stores.base import StoreError
from appliance.settings.config import LoadedConfig
from appliance.settings.copies import Copies
from appliance.storage import migrations
from appliance.storage.database import close_database, open_database, rows
from appliance.storage.migrations import MIGRATIONS

if TYPE_CHECKING:
    from appliance.ops.backups import restore
    from appliance.ops.copies.catalog import CopyEntry
    from appliance.ops.copies.manifest import CopyManifest
    from appliance.ops.stores.base import Store

Loader = Callable[..., LoadedConfig]
# The increment of the niceness of the commands that create a backup or a copy, because they may run beside the service.
_NICENESS = 10
_PRINTED_COUNTS = {"contact": "contacts", "campaign": "campaigns", "message": "messages"}


class BackupCommandFailed(Refused):
    """A failed backup or restore; the message is the reason."""

    code = "not_done"


def add_backup_commands(top: Any, command: Callable[..., Any], load: Loader) -> None:
    """Add the commands `backup`, `restore` and `copies` to the subparsers `top`.

    `command` adds one command, as `_add_command` does; `load` loads the configuration for parsed options, and the
    settings saved on pages.
    """
    words = "back up everything into a new file or to another place, also while the service runs"
    backup_parser = command(top, "backup", lambda options: _run_backup(options, load), words)
    backup_parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help="a new file, such as monday.tar.gz")
    backup_parser.add_argument(
        "--with-key", action="store_true",
        help="include secret.key: the file then gives access to every secret in it",
    )  # fmt: skip
    words = "instead make an encrypted copy in s3://…, sftp://… or file:///…; without URL in copies.store"
    backup_parser.add_argument("--to", metavar="URL", nargs="?", const="", help=words)
    words = "replace the data by a backup; sending stays stopped until it is resumed for each account"
    restore_parser = command(top, "restore", lambda options: _run_restore(options, load), words)
    words = "a file created by campanero backup, or s3://…, sftp://… or file:///… with copies, which are listed"
    restore_parser.add_argument("source", metavar="SOURCE", help=words)
    restore_parser.add_argument("--force", action="store_true", help="replace existing data after backing it up")
    words = "the copy to restore: latest, its id, or the last one before a time such as 2026-11-28T17:00Z"
    restore_parser.add_argument("--at", metavar="TIME", help=words)
    words = "recovery key or identity file of age; without it, the passphrase is the first line of stdin"
    restore_parser.add_argument("--identity", metavar="FILE", type=Path, help=words)
    words = "public key that signed the copies, if the recovery key does not name it: ed25519:…"
    restore_parser.add_argument("--signer", metavar="KEY", help=words)
    words = "restore also if the storage has lost files beside the database, such as attachments, and name them"
    restore_parser.add_argument("--skip-lost-files", action="store_true", help=words)
    _add_copies_commands(top, command, load)


def _add_copies_commands(top: Any, command: Callable[..., Any], load: Loader) -> None:
    words = "encrypted copies in another place"
    group = top.add_parser("copies", help=words, description=words)
    group = group.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(
        name: str, function: Callable[[Path, Copies, argparse.Namespace], int | None], words: str, has_url: bool = True
    ) -> Any:
        def run(options: argparse.Namespace) -> int | None:
            directory, settings = _load_copy_settings(options, load)
            if has_url:
                settings = _choose_store(settings, options.url)
            return function(directory, settings, options)

        parser = command(group, name, run, words)
        if has_url:
            url_words = "s3://…, sftp://… or file:///… instead of copies.store, with the login of the settings"
            parser.add_argument("url", metavar="URL", nargs="?", type=_parse_store_url, help=url_words)
        return parser

    add("list", _list_copies, "list the copies, and what is wrong with them; exit 1 if something is")
    words = "read every object of the newest copy in the storage, and compare its checksum; exit 1 if one is wrong"
    verify = add("verify", _verify_copies, words)
    verify.add_argument("--all", action="store_true", help="all copies instead of the newest one")
    add("prune", _prune_copies, "delete the copies that copies.keep_days, keep_weeks and keep_months do not keep")
    words = "set the passphrase that restores copies; it is the first line of stdin"
    add("passphrase", _set_passphrase, words, has_url=False)
    words = "print a new recovery key; its public key goes into copies.recipients, the rest away from this machine"
    add("key", _print_recovery_key, words, has_url=False)


def _parse_store_url(text: str) -> str:
    """Return the URL of a store. Raises ArgumentTypeError for any other text, also for that of an empty variable."""
    if not stores.is_store_url(text):
        raise argparse.ArgumentTypeError("must begin with s3://, sftp:// or file:///")
    return text


def _load_copy_settings(options: argparse.Namespace, load: Loader) -> tuple[Path, Copies]:
    """Return the data directory and the settings of copies, including those saved on a page; also load the key."""
    directory = Path(load(options).config.data_dir)
    path = directory / archive.DATABASE
    if not os.path.lexists(path):
        raise BackupCommandFailed(f"{directory} contains no data; campanero restore URL lists the copies there")
    crypto.load_key(directory)
    settings = load(options).config.copies
    # A database of another schema must be copied, too, and a damaged database is reported later with its own message.
    try:
        is_current = migrations.inspect_database(path).schema == len(MIGRATIONS)
    except migrations.UnusableDatabase as error:
        raise BackupCommandFailed(str(error)) from None
    if is_current:
        open_database(path)
        settings = load(options, stored_settings.load()).config.copies
        close_database()
    return directory, settings


def _choose_store(settings: Copies, url: str | None) -> Copies:
    """Return the settings, with the store `url` if there is one. Raises BackupCommandFailed if they have no store."""
    import msgspec

    if not url and not settings.store:
        raise BackupCommandFailed("there is no place for copies: set copies.store, or give a URL")
    return msgspec.structs.replace(settings, store=url) if url else settings


def _run_backup(options: argparse.Namespace, load: Loader) -> None:
    if (options.file is None) == (options.to is None):
        raise BackupCommandFailed("give either a new FILE, or --to for a copy in another place")
    if options.to is not None:
        _run_copy(options, load)
        return
    directory = Path(load(options).config.data_dir)
    if not os.path.lexists(directory / archive.DATABASE):
        raise BackupCommandFailed(f"{directory} contains no data")
    os.nice(_NICENESS)
    crypto.load_key(directory)
    target = options.file.absolute()
    progress = _Progress()
    try:
        backups.create_backup(directory, target, options.with_key, progress.show)
    except backups.BackupFailed as error:
        raise BackupCommandFailed(str(error)) from None
    finally:
        progress.end()
    print(f"{options.file}: {target.stat().st_size / 1e6:.1f} MB, verified", flush=True)
    if not options.with_key:
        print(f"Keep a copy of {directory / archive.KEY} in another place: the backup cannot be restored without it.")


def _run_copy(options: argparse.Namespace, load: Loader) -> None:
    from appliance.ops.copies import create

    if options.with_key:
        raise BackupCommandFailed("a copy is encrypted and always includes the key: leave out --with-key")
    directory, settings = _load_copy_settings(options, load)
    settings = _choose_store(settings, options.to)
    os.nice(_NICENESS)
    progress = _Progress()
    try:
        manifest = create.create_copy(directory, settings, progress.show)
    except create.CopyFailed as error:
        raise BackupCommandFailed(str(error)) from None
    finally:
        progress.end()
    print(f"{manifest.id}: {_describe_kind(manifest)}, {manifest.size / 1e6:.1f} MB in {settings.store}", flush=True)


class _Progress:
    """A progress line on stderr that each change overwrites. Nothing is printed if stderr is not a terminal."""

    def __init__(self) -> None:
        self._last_line = ""

    def show(self, words: str, part: float) -> None:
        line = f"{words} {part:4.0%}"
        if sys.stderr.isatty() and line != self._last_line:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._last_line = line

    def end(self) -> None:
        if self._last_line:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _run_restore(options: argparse.Namespace, load: Loader) -> int:
    from appliance import app
    from appliance.ops.backups import restore

    if stores.is_store_url(options.source):
        return _run_restore_from_store(options, load)
    file = Path(options.source)
    if wrong := [name for name in ("at", "identity", "signer") if getattr(options, name) is not None]:
        raise BackupCommandFailed(f"--{wrong[0]} is for copies in storage; {file} is a file")
    if not file.exists():
        raise BackupCommandFailed(f"{file} does not exist")
    if kind := data_dir.irregular_kind(file):
        raise BackupCommandFailed(f"{file} is {kind}, not a backup")
    app.connect_signals()
    directory = data_dir.create(Path(load(options).config.data_dir))
    with data_dir.lock(directory):
        try:
            restored = restore.restore_backup(directory, file, options.force, _print_line)
        except (restore.RestoreFailed, restore.RestoreIncomplete, archive.DamagedArchive) as error:
            raise BackupCommandFailed(str(error)) from None
        _print_restore_report(restored)
    return 0


def _print_line(words: str) -> None:
    print(words, flush=True)


def _run_restore_from_store(options: argparse.Namespace, load: Loader) -> int:
    """List the copies in a store, or restore the chosen one; return the exit code."""
    from appliance import app
    from appliance.ops.backups import restore
    from appliance.ops.copies import restore as copies_restore

    directory, settings = Path(load(options).config.data_dir), load(options).config.copies
    progress = _Progress()
    try:
        with copies_restore.open_source(
            options.source, settings, directory, options.identity, options.signer, _read_passphrase
        ) as source:
            for fault in source.faults:
                print(f"warning: {fault}", file=sys.stderr, flush=True)
            if options.at is None:
                _print_copies(source.entries)
                print("Nothing was restored: choose a copy with --at latest, --at TIME or --at ID.")
                return 0
            source.choose(options.at, options.skip_lost_files, progress.show)
            app.connect_signals()
            with data_dir.lock(data_dir.create(directory)):
                restored = restore.restore_from(directory, source, options.force, _print_line)
                progress.end()
                for name in source.lost_files:
                    print(f"Lost in the storage, and not restored: {name}")
                _print_restore_report(restored)
    except (
        copies_restore.RestoreRefused, restore.RestoreFailed, restore.RestoreIncomplete, archive.DamagedArchive
    ) as error:  # fmt: skip
        raise BackupCommandFailed(str(error)) from None
    finally:
        progress.end()
    return 0


def _read_passphrase() -> str:
    """Return the first line of stdin without its line ending, after a prompt on stderr if stdin is a terminal."""
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("Passphrase: ")
    return sys.stdin.readline().rstrip("\r\n")


def _print_copies(entries: "list[CopyEntry]") -> None:
    for entry in entries:
        if entry.manifest is None:
            print(f"{clock.iso(entry.taken_at)}  {entry.id}  cannot be used")
            continue
        counts = ", ".join(
            f"{entry.manifest.counts[table]:,} {words}"
            for table, words in _PRINTED_COUNTS.items()
            if table in entry.manifest.counts
        )
        size = f"{entry.manifest.size / 1e6:,.1f} MB"
        print(f"{clock.iso(entry.taken_at)}  {entry.id}  {_describe_kind(entry.manifest)}, {size}: {counts}")
    if not entries:
        print("There are no copies.")


def _describe_kind(manifest: "CopyManifest") -> str:
    return "full" if manifest.base is None else f"changes since {manifest.base}"


def _list_copies(directory: Path, settings: Copies, options: argparse.Namespace) -> int:
    from appliance.ops.copies import catalog

    with _open_catalog(directory, settings) as (store, entries, faults):
        _print_copies(entries)
        lost = catalog.find_lost_objects(store, entries)
        return _print_faults([*faults, *(f"{key} is missing in the storage, or has another size" for key in lost)])


def _verify_copies(directory: Path, settings: Copies, options: argparse.Namespace) -> int:
    from appliance.ops.copies import catalog, local

    with _open_catalog(directory, settings) as (store, entries, faults):
        copies = [entry.manifest for entry in entries if entry.manifest]
        refs = catalog.collect_objects(copies)
        newest_ids = {copy_id for copy in copies[:1] for copy_id in (copy.id, copy.base)}
        if not options.all:
            copies = [copy for copy in copies if copy.id in newest_ids]
        is_newest_damaged = False
        for copy in copies:
            object_faults = catalog.verify_objects(store, copy, refs)
            faults += object_faults
            is_newest_damaged |= bool(object_faults) and copy.id in newest_ids
            print(f"{copy.id}: {'damaged' if object_faults else 'complete'}", flush=True)
        if not copies:
            print("There are no copies.")
        if is_newest_damaged:
            local.mark_newest_damaged(local.folder_of(directory), store.url)
            print("Make a new copy (campanero backup --to): the next copy is a full one, and uses nothing of these.")
        return _print_faults(faults)


def _print_faults(faults: list[str]) -> int:
    for fault in faults:
        print(f"warning: {fault}", file=sys.stderr, flush=True)
    return int(bool(faults))


@contextmanager
def _open_catalog(directory: Path, settings: Copies) -> "Iterator[tuple[Store, list[CopyEntry], list[str]]]":
    """Yield (store, its copies, a sentence for each problem with them). The key of this machine must be loaded."""
    from appliance.ops.copies import catalog, keys, local

    try:
        with closing(stores.open_store(settings.store, settings)) as store:
            entries = catalog.list_copies(store, keys.catalog_reader())
            state = local.read_state(local.folder_of(directory), store.url)
            yield store, entries, catalog.find_faults(entries, state)
    except StoreError as error:
        raise BackupCommandFailed(str(error)) from None


def _prune_copies(directory: Path, settings: Copies, options: argparse.Namespace) -> None:
    from appliance.ops.copies import create, prune

    try:
        result = prune.prune_copies(directory, settings)
    except create.CopyFailed as error:
        raise BackupCommandFailed(str(error)) from None
    for copy_id in result.deleted:
        print(f"{copy_id}: deleted")
    print(f"Copies deleted: {len(result.deleted)}; objects deleted that no copy needed: {result.orphan_count}")


def _set_passphrase(directory: Path, settings: Copies, options: argparse.Namespace) -> None:
    from appliance.ops.copies import keys, local

    try:
        keys.set_passphrase(local.folder_of(directory), _read_passphrase())
    except keys.UnusableKey as error:
        raise BackupCommandFailed(str(error)) from None
    print("The next copy, a full one, and all after it can be restored with this passphrase.")
    print(f"Keep it away from this machine, with the public key of the signature: {_signer()}")


def _print_recovery_key(directory: Path, settings: Copies, options: argparse.Namespace) -> None:
    from appliance.ops.copies import keys

    identity, recipient = keys.create_identity()
    print(keys.format_recovery_key(identity), end="")
    print(f"# public key, for copies.recipients: {recipient}")


def _signer() -> str:
    from appliance.ops.copies import keys

    return keys.format_signer(keys.own_signer())


def _print_restore_report(restored: "restore.RestoreResult") -> None:
    from appliance.ops.backups import restore

    print(f"Restored to {clock.iso(restored.manifest.taken_at)}.")
    if restored.previous_data_path is not None:
        print(f"The previous data is kept in {restored.previous_data_path}.")
    for sentence in restore.describe_replay(restored):
        print(sentence)
    for account_id, account_name in rows("SELECT id, name FROM account ORDER BY id"):
        held_sending = restore.find_held_sending(account_id)
        print(f"{account_name}: sending is stopped." + ("" if held_sending.is_empty else " Open messages:"))
        for campaign in held_sending.campaigns:
            name = campaign.name or "without a name"
            counts = f"{campaign.open_count} open, {campaign.sent_count} sent earlier"
            if campaign.sent_since_count:
                counts += f", {campaign.sent_since_count} sent after this backup"
            print(f"  campaign {campaign.campaign_id}, {name}: {counts}")
        for flow in held_sending.flows:
            since = f", {flow.sent_since_count} messages sent after this backup" if flow.sent_since_count else ""
            print(f"  flow {flow.flow_id}, {flow.name or 'without a name'}: paused, {flow.run_count} runs{since}")
        if held_sending.flow_message_count or held_sending.other_message_count:
            flow_count, other_count = held_sending.flow_message_count, held_sending.other_message_count
            print(f"  {flow_count} messages of flows, {other_count} single messages")
    if restored.readmitted:
        print(f"Disabled since the backup, and able to sign in again: {', '.join(restored.readmitted)}.")
    print("Start the service and open /restored to decide about messages that may have been sent since the backup.")
