"""Helpers for contacts with phones, an SMS campaign to them, and a sender that claims their messages."""

from typing import Any

import msgspec

from appliance.campaigns import store
from appliance.campaigns.store import CampaignCreate
from appliance.core import clock, validation
from appliance.sending.delivery.smtp_client import Envelope
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import LedgerRow, Outcome, OutgoingMessage
from appliance.sending.messages.queue_reader import QueueReader
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home

_ROWS = (
    "INSERT INTO message (account_id, contact_id, campaign_id, channel, recipient, recipient_key, status, source_type, "
    "transactional, test, provider, attempts, uncertain_count, due_at, created_at, updated_at) "
    "SELECT account_id, contact_id, ?1, 'sms', value, key, 'queued', 'campaign', 0, 0, ?2, 0, 0, 0, ?3, ?3 "
    "FROM channel WHERE kind = 'phone'"
)


def use_sms_transport(**settings: Any) -> None:
    """Configure an SMS transport, Twilio by default, with these settings of `sms`."""
    settings_now = config.current()
    changes = {"transport": "twilio"} | settings
    config.set_current(msgspec.structs.replace(settings_now, sms=msgspec.structs.replace(settings_now.sms, **changes)))


def advance_to(home: Home, moment: str) -> None:
    """Advance the clock to a time given in ISO 8601."""
    home.advance((clock.parse(moment) - clock.now_ms()) / 1000)


def queue_sms_campaign(home: Home, provider: str = "twilio") -> int:
    """Create a campaign in the sending phase with one queued SMS for each phone channel, and return its id."""
    body = {"name": "Spring", "channel": "sms", "template_attributes": {"body": "Hi"}}
    campaign = transactions.write(store.create, home.account_id, validation.read(CampaignCreate, body))
    transactions.write(run, "UPDATE campaign SET phase = 'sending', status = 'active' WHERE id = ?", (campaign.id,))
    transactions.write(run, _ROWS, (campaign.id, provider, clock.now_ms()))
    return int(campaign.id)


def claim_all(reader: QueueReader | None = None) -> list[LedgerRow]:
    """Claim all SMS that are due, as a sender does."""
    reader, ledger_rows = reader or QueueReader("sms"), []
    while candidates := reader.fetch_candidates(100):
        claimed_ids = transactions.write(queue.claim, candidates, "process")
        ledger_rows += [row for row in candidates if row.id in claimed_ids]
    return ledger_rows


def record_accepted(ledger_rows: list[LedgerRow], parts: int = 1) -> None:
    """Record these messages as accepted by the provider."""
    prepared = OutgoingMessage(Envelope("", "", b""), "", "+15550001111", "", parts)
    outcomes = [
        Outcome(row, sender="+15550001111", prepared=prepared, provider_id=f"SM{row.id}") for row in ledger_rows
    ]
    transactions.write(queue.record, outcomes)


def message_states() -> list[tuple[str, str, str | None]]:
    """Return (recipient, status, skip reason) of all messages."""
    return rows("SELECT recipient, status, skip_reason FROM message ORDER BY id")
