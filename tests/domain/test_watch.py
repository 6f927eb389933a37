"""What stops a campaign by itself, at its very edges (docs/decisions.md#6)."""

from appliance.accounts.audit import Actor
from appliance.campaigns import send, states, store
from appliance.inbound import delivery_reports
from appliance.inbound.delivery_reports import DeliveryReport
from appliance.sending.messages import ledger
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign
from tests.domain.home import Home
from tests.domain.test_outcomes import finish, take


def sent(home: Home, people: int, accepted: int) -> Campaign:
    """Send a campaign some messages of which were accepted already."""
    members = [home.contact(f"p{number}@example.org").id for number in range(people)]
    campaign = home.send(home.campaign(home.list_of(*members).id))
    for _ in range(accepted):
        finish(take(), "accepted")
    return campaign


def test_complaints_stop_a_campaign(home: Home) -> None:
    """Over three in a thousand, from a hundred messages on; counted anew once a person lets it go on."""
    campaign = sent(home, 120, 99)
    transactions.write(ledger.increment_campaign, campaign.id, "complained")
    assert states.list_auto_pause_candidates() == []
    finish(take(), "accepted")
    assert states.list_auto_pause_candidates() == [(home.account_id, campaign.id)]
    assert transactions.write(states.check_auto_pause, home.account_id, campaign.id) == "complaint_rate"
    stopped = store.get(home.account_id, campaign.id)
    transactions.write(send.resume, home.account_id, campaign.id, Actor("user:1"))
    for _ in range(20):
        finish(take(), "accepted")

    assert (stopped.status, stopped.pause_reason, stopped.stats["pending"]) == ("paused", "complaint_rate", 20)
    assert states.list_auto_pause_candidates() == []
    # A thousand later three more are as many as may be, the fourth is one too many
    transactions.write(run, "UPDATE campaign SET sent_count = sent_count + 980 WHERE id = ?", (campaign.id,))
    for _ in range(3):
        transactions.write(ledger.increment_campaign, campaign.id, "complained")
    assert states.list_auto_pause_candidates() == []
    transactions.write(ledger.increment_campaign, campaign.id, "complained")
    assert states.list_auto_pause_candidates() == [(home.account_id, campaign.id)]


def test_bounces_after_acceptance_count_too(home: Home) -> None:
    """What comes back later is as much a bounce as what was refused at once."""
    campaign = sent(home, 110, 100)
    for _ in range(5):
        transactions.write(ledger.increment_campaign, campaign.id, "bounced")
    assert states.list_auto_pause_candidates() == []
    transactions.write(ledger.increment_campaign, campaign.id, "bounced")

    assert transactions.write(states.check_auto_pause, home.account_id, campaign.id) == "bounce_rate"


def test_reports_that_mail_is_not_known_as_ours_stop_a_campaign(home: Home) -> None:
    """Three reports of refusals for want of DKIM pause what still goes out, with what to enter; nobody is blamed."""
    campaign = sent(home, 6, 4)
    for number, to in rows("SELECT id, recipient FROM message WHERE status = 'sent' ORDER BY id LIMIT 3"):
        assert states.list_auto_pause_candidates() == []
        words = "550 5.7.30 no valid DKIM signature"
        transactions.write(
            delivery_reports.record_report, DeliveryReport(number, "bounced", "dsn", words, 550, "5.7.30", to)
        )
    assert states.list_auto_pause_candidates() == [(home.account_id, campaign.id)]
    assert transactions.write(states.check_auto_pause, home.account_id, campaign.id) == "transport"
    stopped = store.get(home.account_id, campaign.id)
    assert stopped.phase == "paused" and "_domainkey" in stopped.data["pause_detail"]
    assert rows("SELECT count(*) FROM suppression") == [(0,)]
    transactions.write(send.resume, home.account_id, campaign.id, Actor("user:1"))
    assert states.list_auto_pause_candidates() == [], "what was is theirs to answer for"
