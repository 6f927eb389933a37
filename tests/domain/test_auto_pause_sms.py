"""Auto-pause of SMS campaigns by delivery receipts."""

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import send, states, store
from appliance.inbound import delivery_reports
from appliance.sending.sms.error_codes import Receipt
from appliance.storage import transactions
from appliance.storage.database import run
from appliance.storage.models import Campaign
from tests.domain.home import Home
from tests.domain.test_receipts import create_sms


def send_campaign(home: Home, accepted_count: int) -> Campaign:
    """Return a campaign being sent, with this many accepted SMS."""
    campaign = home.send(home.campaign(home.list_of(home.contact("a@example.org").id).id))
    transactions.write(run, "UPDATE campaign SET sent_count = ? WHERE id = ?", (accepted_count, campaign.id))
    return store.get(home.account_id, campaign.id)


def add_failures(home: Home, campaign: Campaign, count: int, code: str, first: int = 0) -> None:
    """Add failed SMS of a campaign, each to another number, with a provider's code."""
    for number in range(first, first + count):
        create_sms(home, sid=f"SM{number}", campaign=campaign.id, number=f"+1555{number:07}", transactional=False)
        assert transactions.write(
            delivery_reports.apply_receipt, "twilio", Receipt(f"SM{number}", "undelivered", None, code)
        )


@pytest.mark.parametrize(
    ("code", "accepted_count", "below_limit", "at_limit", "reason", "detail"),
    [
        ("30034", 1000, 2, 3, "transport", "Register the sender"),
        ("30007", 100, 9, 10, "transport", "links of your own domain"),
        ("30007", 400, 20, 21, "transport", "links of your own domain"),
        ("30005", 100, 5, 6, "bounce_rate", ""),
    ],
)
def test_failures_pause_a_campaign(
    code: str, accepted_count: int, below_limit: int, at_limit: int, reason: str, detail: str, home: Home
) -> None:
    """Receipts of an unregistered sender, filtering or dead numbers pause it at their limit, not one earlier."""
    campaign = send_campaign(home, accepted_count)
    add_failures(home, campaign, below_limit, code)
    assert states.list_auto_pause_candidates() == []
    add_failures(home, campaign, at_limit - below_limit, code, first=below_limit)
    assert states.list_auto_pause_candidates() == [(home.account_id, campaign.id)]
    assert transactions.write(states.check_auto_pause, home.account_id, campaign.id) == reason
    paused = store.get(home.account_id, campaign.id)
    assert paused.phase == "paused" and detail in str(paused.data.get("pause_detail", ""))

    transactions.write(send.resume, home.account_id, campaign.id, Actor("user:1"))
    assert states.list_auto_pause_candidates() == []


def test_harmless_failures_pause_nothing(home: Home) -> None:
    """Phones that are off, closed countries and unknown reasons do not pause a campaign."""
    campaign = send_campaign(home, 100)
    for first, code in enumerate(("30003", "21408", "30008")):
        add_failures(home, campaign, 20, code, first=100 * first)
    assert states.list_auto_pause_candidates() == []
