"""People with phones, a campaign of SMS to them, and a sender that takes what may go."""

from typing import Any

import msgspec

from appliance.campaigns import store
from appliance.campaigns.requests import CampaignCreate
from appliance.core import clock, fields
from appliance.sending.delivery.send import Envelope
from appliance.sending.messages import hot
from appliance.sending.messages.ledger import Claim, Outcome, Prepared
from appliance.sending.messages.queue_order import Line
from appliance.settings import config
from appliance.storage import work
from appliance.storage.open import rows, run
from tests.domain.home import Home

_ROWS = (
    "INSERT INTO message (account_id, contact_id, campaign_id, channel, recipient, recipient_key, status, source_type, "
    "transactional, test, provider, attempts, doubts, due_at, created_at, updated_at) "
    "SELECT account_id, contact_id, ?1, 'sms', value, key, 'queued', 'campaign', 0, 0, ?2, 0, 0, 0, ?3, ?3 "
    "FROM channel WHERE kind = 'phone'"
)


def real(**settings: Any) -> None:
    """Let SMS leave this machine, by these settings of `sms`."""
    here = config.current()
    given = {"transport": "twilio"} | settings
    config.use(msgspec.structs.replace(here, sms=msgspec.structs.replace(here.sms, **given)))


def go_to(home: Home, moment: str) -> None:
    """Let it be this time."""
    home.advance((clock.parse(moment) - clock.now_ms()) / 1000)


def texted(home: Home, provider: str = "twilio") -> int:
    """Send a campaign to every phone there is, and answer its id."""
    asked = {"name": "Spring", "channel": "sms", "template_attributes": {"body": "Hi"}}
    campaign = work.write(store.create, home.account_id, fields.read(CampaignCreate, asked))
    work.write(run, "UPDATE campaign SET phase = 'sending', status = 'active' WHERE id = ?", (campaign.id,))
    work.write(run, _ROWS, (campaign.id, provider, clock.now_ms()))
    return int(campaign.id)


def taken(line: Line | None = None) -> list[Claim]:
    """Mark all that may go now, as a sender does."""
    line, found = line or Line("sms"), []
    while some := line.candidates(100):
        marked = work.write(hot.step, [], some, "process")
        found += [row for row in some if row.id in marked]
    return found


def accept(claims: list[Claim], parts: int = 1) -> None:
    """Let the provider take these."""
    said = Prepared(Envelope("", "", b""), "", "+15550001111", "", parts)
    outcomes = [Outcome(one, sender="+15550001111", prepared=said, provider_id=f"SM{one.id}") for one in claims]
    work.write(hot.step, outcomes, [], "process")


def ends() -> list[tuple[str, str, str | None]]:
    """Return how each number stands: its row's status and why it was skipped."""
    return rows("SELECT recipient, status, skip_reason FROM message ORDER BY id")
