"""What networks tell of the SMS of a campaign stops it: a sender that is not registered, filters, dead numbers."""

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import send, states, store
from appliance.inbound import delivery_reports
from appliance.sending.sms.error_codes import Receipt
from appliance.storage import transactions
from appliance.storage.database import run
from appliance.storage.models import Campaign
from tests.domain.home import Home
from tests.domain.test_receipts import text


def live(home: Home, accepted: int) -> Campaign:
    """Return a campaign under way, of which so many SMS were accepted."""
    campaign = home.send(home.campaign(home.list_of(home.contact("a@example.org").id).id))
    transactions.write(run, "UPDATE campaign SET sent_count = ? WHERE id = ?", (accepted, campaign.id))
    return store.get(home.account_id, campaign.id)


def fail(home: Home, campaign: Campaign, count: int, code: str, first: int = 0) -> None:
    """Let that many SMS of a campaign, each to a number of its own, come back with a code."""
    for number in range(first, first + count):
        text(home, sid=f"SM{number}", campaign=campaign.id, number=f"+1555{number:07}", transactional=False)
        assert transactions.write(
            delivery_reports.apply_receipt, "twilio", Receipt(f"SM{number}", "undelivered", None, code)
        )


@pytest.mark.parametrize(
    ("code", "accepted", "few", "enough", "reason", "word"),
    [
        ("30034", 1000, 2, 3, "transport", "Register the sender"),
        ("30007", 100, 9, 10, "transport", "links of your own domain"),
        ("30007", 400, 20, 21, "transport", "links of your own domain"),
        ("30005", 100, 5, 6, "bounce_rate", ""),
    ],
)
def test_what_stops_a_campaign(
    code: str, accepted: int, few: int, enough: int, reason: str, word: str, home: Home
) -> None:
    """Three unregistered, filters from ten on and over 5 %, dead numbers over 5 % of a hundred: paused, with why."""
    campaign = live(home, accepted)
    fail(home, campaign, few, code)
    assert states.list_auto_pause_candidates() == []
    fail(home, campaign, enough - few, code, first=few)
    assert states.list_auto_pause_candidates() == [(home.account_id, campaign.id)]
    assert transactions.write(states.check_auto_pause, home.account_id, campaign.id) == reason
    stopped = store.get(home.account_id, campaign.id)
    assert stopped.phase == "paused" and word in str(stopped.data.get("pause_detail", ""))

    transactions.write(send.resume, home.account_id, campaign.id, Actor("user:1"))
    assert states.list_auto_pause_candidates() == []


def test_what_speaks_against_nobody_stops_nothing(home: Home) -> None:
    """That phones are off, a country is closed or nobody knows why is no reason to stop a campaign."""
    campaign = live(home, 100)
    for first, code in enumerate(("30003", "21408", "30008")):
        fail(home, campaign, 20, code, first=100 * first)
    assert states.list_auto_pause_candidates() == []
