"""Auto-pause of campaigns, at its exact limits (docs/decisions.md#6)."""

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import preflight, send, states, store
from appliance.core import clock
from appliance.core.errors import Unavailable
from appliance.inbound import delivery_reports
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.jobs import Jobs
from appliance.sending.messages import ledger
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign
from tests.domain.home import Home
from tests.domain.test_outcomes import claim_next, finish


def send_campaign(home: Home, contact_count: int, accepted_count: int) -> Campaign:
    """Send a campaign, some messages of which are accepted already."""
    members = [home.contact(f"p{number}@example.org").id for number in range(contact_count)]
    campaign = home.send(home.campaign(home.list_of(*members).id))
    for _ in range(accepted_count):
        finish(claim_next(), "accepted")
    return campaign


def test_complaints_pause_a_campaign(home: Home) -> None:
    """More than three complaints in a thousand pause it, from 100 messages on; a resume starts the count again."""
    campaign = send_campaign(home, 120, 99)
    transactions.write(ledger.increment_campaign, campaign.id, "complained")
    assert states.list_auto_pause_candidates() == []
    finish(claim_next(), "accepted")
    assert states.list_auto_pause_candidates() == [(home.account_id, campaign.id)]
    assert transactions.write(states.check_auto_pause, home.account_id, campaign.id) == "complaint_rate"
    paused = store.get(home.account_id, campaign.id)
    transactions.write(send.resume, home.account_id, campaign.id, Actor("user:1"))
    for _ in range(20):
        finish(claim_next(), "accepted")

    assert (paused.status, paused.pause_reason, paused.stats["pending"]) == ("paused", "complaint_rate", 20)
    assert states.list_auto_pause_candidates() == []
    # After a thousand more, three complaints are allowed and the fourth is too many
    transactions.write(run, "UPDATE campaign SET sent_count = sent_count + 980 WHERE id = ?", (campaign.id,))
    for _ in range(3):
        transactions.write(ledger.increment_campaign, campaign.id, "complained")
    assert states.list_auto_pause_candidates() == []
    transactions.write(ledger.increment_campaign, campaign.id, "complained")
    assert states.list_auto_pause_candidates() == [(home.account_id, campaign.id)]


def test_late_bounces_pause_a_campaign(home: Home) -> None:
    """Bounces after acceptance count as much as rejections."""
    campaign = send_campaign(home, 110, 100)
    for _ in range(5):
        transactions.write(ledger.increment_campaign, campaign.id, "bounced")
    assert states.list_auto_pause_candidates() == []
    transactions.write(ledger.increment_campaign, campaign.id, "bounced")

    assert transactions.write(states.check_auto_pause, home.account_id, campaign.id) == "bounce_rate"


def report_unauthenticated(count: int) -> None:
    """Record reports of missing DKIM about some of the sent messages."""
    sql = "SELECT id, recipient FROM message WHERE status = 'sent' ORDER BY id LIMIT ?"
    for message_id, recipient in rows(sql, (count,)):
        transactions.write(
            delivery_reports.record_report,
            DeliveryReport(message_id, "bounced", "dsn", "550 5.7.30 no valid DKIM", 550, "5.7.30", recipient),
        )


def test_a_few_authentication_reports_pause_nothing(home: Home) -> None:
    """The recipients of a few messages can forge reports about them, so these count by their share."""
    send_campaign(home, 110, 50)
    report_unauthenticated(4)
    assert states.list_auto_pause_candidates() == []


def test_authentication_reports_pause_a_campaign(home: Home) -> None:
    """Reports about more than 5 % pause it, with the records to add; no address is suppressed."""
    campaign = send_campaign(home, 110, 100)
    report_unauthenticated(5)
    assert states.list_auto_pause_candidates() == []
    report_unauthenticated(1)
    assert states.list_auto_pause_candidates() == [(home.account_id, campaign.id)]
    assert transactions.write(states.check_auto_pause, home.account_id, campaign.id) == "transport"
    paused = store.get(home.account_id, campaign.id)
    assert paused.phase == "paused" and "_domainkey" in paused.data["pause_detail"]
    assert rows("SELECT count(*) FROM suppression") == [(0,)]
    transactions.write(send.resume, home.account_id, campaign.id, Actor("user:1"))
    assert states.list_auto_pause_candidates() == [], "reports from before the resume must not count"


def test_a_campaign_that_cannot_be_prepared_is_paused_when_late(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again until it is six hours late (P8); then it no longer takes the place of others."""

    def fail(account_id: int, campaign_id: int) -> None:
        raise Unavailable("HTML cannot be processed now")

    home.campaign(home.list_of(home.contact("ann@example.org").id).id)
    transactions.write(
        run, "UPDATE campaign SET status = 'active', phase = 'scheduled', scheduled_at = ?", (clock.now_ms() - 1000,)
    )
    monkeypatch.setattr(preflight, "prepare_send", fail)
    jobs = Jobs("process")
    jobs.start_campaigns()
    assert rows("SELECT phase, pause_reason FROM campaign") == [("scheduled", None)]
    home.advance(7 * 3600)
    jobs.start_campaigns()
    assert rows("SELECT phase, pause_reason FROM campaign") == [("paused", "missed_start")] and send.list_due() == []
