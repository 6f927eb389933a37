"""People with phones, a campaign of SMS to them, and a sender that takes what may go."""

from typing import Any

import msgspec

from appliance.campaigns import store
from appliance.campaigns.store import CampaignCreate
from appliance.core import clock, validation
from appliance.sending.delivery.smtp_client import Envelope
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import Claim, Outcome, PreparedMessage
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


def real(**settings: Any) -> None:
    """Let SMS leave this machine, by these settings of `sms`."""
    here = config.current()
    given = {"transport": "twilio"} | settings
    config.set_current(msgspec.structs.replace(here, sms=msgspec.structs.replace(here.sms, **given)))


def go_to(home: Home, moment: str) -> None:
    """Let it be this time."""
    home.advance((clock.parse(moment) - clock.now_ms()) / 1000)


def texted(home: Home, provider: str = "twilio") -> int:
    """Send a campaign to every phone there is, and answer its id."""
    asked = {"name": "Spring", "channel": "sms", "template_attributes": {"body": "Hi"}}
    campaign = transactions.write(store.create, home.account_id, validation.read(CampaignCreate, asked))
    transactions.write(run, "UPDATE campaign SET phase = 'sending', status = 'active' WHERE id = ?", (campaign.id,))
    transactions.write(run, _ROWS, (campaign.id, provider, clock.now_ms()))
    return int(campaign.id)


def taken(line: QueueReader | None = None) -> list[Claim]:
    """Mark all that may go now, as a sender does."""
    line, found = line or QueueReader("sms"), []
    while some := line.fetch_candidates(100):
        marked = transactions.write(queue.record_and_claim, [], some, "process")
        found += [row for row in some if row.id in marked]
    return found


def accept(claims: list[Claim], parts: int = 1) -> None:
    """Let the provider take these."""
    said = PreparedMessage(Envelope("", "", b""), "", "+15550001111", "", parts)
    outcomes = [Outcome(one, sender="+15550001111", prepared=said, provider_id=f"SM{one.id}") for one in claims]
    transactions.write(queue.record_and_claim, outcomes, [], "process")


def ends() -> list[tuple[str, str, str | None]]:
    """Return how each number stands: its row's status and why it was skipped."""
    return rows("SELECT recipient, status, skip_reason FROM message ORDER BY id")
