"""What stops a campaign by itself, at its very edges (docs/decisions.md#6)."""

from appliance.accounts.acting import By
from appliance.campaigns import states, store
from appliance.inbound.feedback import record
from appliance.inbound.feedback.record import Fact
from appliance.sending.messages import message_counters
from appliance.storage import work
from appliance.storage.models import Campaign
from appliance.storage.open import rows, run
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
    work.write(message_counters.against, campaign.id, "complained")
    assert states.suspects() == []
    finish(take(), "accepted")
    assert states.suspects() == [(home.account_id, campaign.id)]
    assert work.write(states.check_auto_pause, home.account_id, campaign.id) == "complaint_rate"
    stopped = store.get(home.account_id, campaign.id)
    work.write(states.resume, home.account_id, campaign.id, By("user:1"))
    for _ in range(20):
        finish(take(), "accepted")

    assert (stopped.status, stopped.pause_reason, stopped.stats["pending"]) == ("paused", "complaint_rate", 20)
    assert states.suspects() == []
    # A thousand later three more are as many as may be, the fourth is one too many
    work.write(run, "UPDATE campaign SET sent_count = sent_count + 980 WHERE id = ?", (campaign.id,))
    for _ in range(3):
        work.write(message_counters.against, campaign.id, "complained")
    assert states.suspects() == []
    work.write(message_counters.against, campaign.id, "complained")
    assert states.suspects() == [(home.account_id, campaign.id)]


def test_bounces_after_acceptance_count_too(home: Home) -> None:
    """What comes back later is as much a bounce as what was refused at once."""
    campaign = sent(home, 110, 100)
    for _ in range(5):
        work.write(message_counters.against, campaign.id, "bounced")
    assert states.suspects() == []
    work.write(message_counters.against, campaign.id, "bounced")

    assert work.write(states.check_auto_pause, home.account_id, campaign.id) == "bounce_rate"


def test_reports_that_mail_is_not_known_as_ours_stop_a_campaign(home: Home) -> None:
    """Three reports of refusals for want of DKIM pause what still goes out, with what to enter; nobody is blamed."""
    campaign = sent(home, 6, 4)
    for number, to in rows("SELECT id, recipient FROM message WHERE status = 'sent' ORDER BY id LIMIT 3"):
        assert states.suspects() == []
        words = "550 5.7.30 no valid DKIM signature"
        work.write(record.apply, Fact(number, "bounced", "dsn", words, 550, "5.7.30", to))
    assert states.suspects() == [(home.account_id, campaign.id)]
    assert work.write(states.check_auto_pause, home.account_id, campaign.id) == "transport"
    stopped = store.get(home.account_id, campaign.id)
    assert stopped.phase == "paused" and "_domainkey" in stopped.data["pause_detail"]
    assert rows("SELECT count(*) FROM suppression") == [(0,)]
    work.write(states.resume, home.account_id, campaign.id, By("user:1"))
    assert states.suspects() == [], "what was is theirs to answer for"
