"""An installation in this process: migrated database, key, configuration, and helpers for common actions."""

import os
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from appliance import app
from appliance.accounts import accounts, limits
from appliance.accounts.audit import Actor
from appliance.audience import consent, lists
from appliance.audience.consent import Evidence
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactPatch, ContactWrite
from appliance.audience.contacts.write import WriteResult
from appliance.audience.lists import ListCreate
from appliance.campaigns import send, store
from appliance.campaigns.store import CampaignCreate, SendRequest
from appliance.core import addresses, clock, crypto, signals, validation
from appliance.flows import event_waits, versions
from appliance.sending.messages import queue, retries, submission_limits
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.queue_reader import QueueReader
from appliance.settings import config
from appliance.storage import disk_guard, transactions
from appliance.storage.database import PRAGMAS, close_database, open_database, rows, run
from appliance.storage.migrations import migrate
from appliance.storage.models import Campaign, Channel, Contact, ContactList

BY_API = Evidence(source="api", actor="key:1", ip="192.0.2.1")
BY_LINK = Evidence(source="one_click", actor="recipient")


_mtimes = count(1_000_000_000, 1_000_000_000)


@cache
def _new_installation() -> dict[str, bytes]:
    """Return the files of a data directory with a migrated database and a key, made once: migrating takes 0.1 s."""
    with TemporaryDirectory(prefix="campanero-test-") as name:
        directory = Path(name)
        open_database(directory / "campanero.db")
        migrate()
        close_database()
        crypto.create_key(directory)
        return {path.name: path.read_bytes() for path in directory.iterdir()}


class Home:
    """One data directory, opened in this process.

    All its settings are global to the process, so `close` resets them.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        app.connect_signals()
        for name, content in _new_installation().items():
            (directory / name).write_bytes(content)
            (directory / name).chmod(0o600)
        # No test cuts the power, and waiting for the disk would take most of the time
        PRAGMAS["synchronous"] = 0
        open_database(directory / "campanero.db")
        crypto.load_key(directory)
        self.configure(**settings)
        self.account_id: int = transactions.write(lambda: accounts.create("Acme").id)
        self._offset = 0.0

    def configure(self, **settings: Any) -> None:
        """Set the configuration to the defaults with these settings, whose names have `__` for each dot."""
        options = {name.replace("__", "."): value for name, value in settings.items()}
        config.set_current(config.load({"data_dir": str(self.directory), **options}, {}).config)

    def close(self) -> None:
        """Reset everything that is global to the process."""
        transactions.stop()
        disk_guard.note_success()  # storage errors of this installation do not affect the next one
        signals.clear_handlers()
        submission_limits.forget()
        limits.forget()
        clock.use_offset_file(None)
        versions._plan_cache.clear()
        event_waits._known_waits.clear()
        close_database()
        PRAGMAS["synchronous"] = 2
        crypto._key, config._current, transactions._has_ended = b"", None, False

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        path = self.directory / "clock"
        self._offset += seconds
        path.write_text(repr(self._offset))
        # The clock rereads the file when its modification time changes; tests outrun its resolution
        mtime = next(_mtimes)
        os.utime(path, ns=(mtime, mtime))
        clock.use_offset_file(str(path))

    # -- contacts --------------------------------------------------------------------------------------------------

    def upsert(self, **body: Any) -> WriteResult:
        """Create or update a contact as the API does."""
        return transactions.write(write.upsert, self.account_id, validation.read(ContactWrite, body), BY_API)

    def patch(self, contact_id: int, **body: Any) -> WriteResult:
        """Update a contact as the API does."""
        return transactions.write(
            write.update, self.account_id, contact_id, validation.read(ContactPatch, body), BY_API
        )

    def contact(self, email: str, **body: Any) -> Contact:
        """Create a contact, or update it, and return it."""
        return self.upsert(email=email, **body).contact

    def channel(self, address: str) -> Channel:
        """Return the stored channel of an address."""
        kind = "email" if "@" in address else "phone"
        return Channel.get(Channel.account == self.account_id, Channel.key == addresses.parse(kind, address).key)

    def opt_out(self, address: str) -> None:
        """Opt an address out as its recipient."""
        transactions.write(lambda: consent.opt_out(self.channel(address), "recipient", BY_LINK))

    def suppress(self, address: str, reason: str) -> None:
        """Add an address to the suppression list, and set the suppression of its channel if there is one."""
        kind = "email" if "@" in address else "phone"
        key = addresses.parse(kind, address).key
        transactions.write(
            run,
            "INSERT INTO suppression (account_id, kind, address_hash, address, reason, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (self.account_id, kind, crypto.hash_address(kind, key), key, reason, clock.now_ms()),
        )
        transactions.write(run, "UPDATE channel SET suppression = ? WHERE key = ?", (reason, key))

    def consent_rows(self, address: str) -> list[tuple[str, str, str, str | None]]:
        """Return the consent rows of an address: act, by, source, actor."""
        kind = "email" if "@" in address else "phone"
        hashed = crypto.hash_address(kind, addresses.parse(kind, address).key)
        return rows("SELECT act, by, source, actor FROM consent WHERE address_hash = ? ORDER BY id", (hashed,))

    # -- campaigns -------------------------------------------------------------------------------------------------

    def list_of(self, *contact_ids: int, name: str = "News") -> ContactList:
        """Create a list with these members."""
        return transactions.write(lists.create, self.account_id, ListCreate(name=name, contact_ids=list(contact_ids)))

    def campaign(self, list_id: int, name: str = "Spring", **template: Any) -> Campaign:
        """Create a draft campaign to a list."""
        body = {
            "name": name,
            "trigger_attributes": {"contact_list_id": list_id},
            "template_attributes": {"subject": "Hello", "body": "<p>Hi</p>", **template},
        }
        return transactions.write(store.create, self.account_id, validation.read(CampaignCreate, body))

    def send(self, campaign: Campaign, **body: Any) -> Campaign:
        """Send a campaign as the API does."""
        return transactions.write(
            send.go_live, self.account_id, campaign.id, validation.read(SendRequest, body), Actor("key:1")
        )


def recover_after_crash() -> int:
    """Recover the messages that a dead process left claimed, as the next process does, and return their number."""
    return transactions.write(retries.recover_interrupted, retries.find_interrupted())


def record_and_claim(outcome: Outcome | None, want: bool, channel: str = "email") -> LedgerRow | None:
    """Record an outcome if given, then claim and return the next message if `want`, or None if none is due."""
    if outcome is not None:
        transactions.write(queue.record, [outcome])
    while want and (candidates := QueueReader(channel).fetch_candidates(1)):
        row = candidates[0]._replace(first_attempt_at=candidates[0].first_attempt_at or clock.now_ms())
        if row.recipient is not None:
            payload = retries.load_payload(row.id) if row.uncertain_count else None
            row = row._replace(body_hash=retries.hash_body(payload or MessagePreparer().prepare(row)))
        if row.id in transactions.write(queue.claim, [row], "process"):
            return row
    return None
