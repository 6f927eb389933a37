"""What stops a campaign by itself, at its very edges (docs/decisions.md#6)."""

from appliance.account.acting import By
from appliance.campaigns import auto_pause, states, store
from appliance.db import work
from appliance.db.open import rows, run
from appliance.feedback import record
from appliance.feedback.facts import Fact
from appliance.messages import failure_counts
from appliance.tables import Campaign
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
    work.write(failure_counts.against, campaign.id, "complained")
    assert auto_pause.suspects() == []
    finish(take(), "accepted")
    assert auto_pause.suspects() == [(home.account_id, campaign.id)]
    assert work.write(auto_pause.look, home.account_id, campaign.id) == "complaint_rate"
    stopped = store.get(home.account_id, campaign.id)
    work.write(states.resume, home.account_id, campaign.id, By("user:1"))
    for _ in range(20):
        finish(take(), "accepted")

    assert (stopped.status, stopped.pause_reason, stopped.stats["pending"]) == ("paused", "complaint_rate", 20)
    assert auto_pause.suspects() == []
    # A thousand later three more are as many as may be, the fourth is one too many
    work.write(run, "UPDATE campaign SET sent_count = sent_count + 980 WHERE id = ?", (campaign.id,))
    for _ in range(3):
        work.write(failure_counts.against, campaign.id, "complained")
    assert auto_pause.suspects() == []
    work.write(failure_counts.against, campaign.id, "complained")
    assert auto_pause.suspects() == [(home.account_id, campaign.id)]


def test_bounces_after_acceptance_count_too(home: Home) -> None:
    """What comes back later is as much a bounce as what was refused at once."""
    campaign = sent(home, 110, 100)
    for _ in range(5):
        work.write(failure_counts.against, campaign.id, "bounced")
    assert auto_pause.suspects() == []
    work.write(failure_counts.against, campaign.id, "bounced")

    assert work.write(auto_pause.look, home.account_id, campaign.id) == "bounce_rate"


def test_reports_that_mail_is_not_known_as_ours_stop_a_campaign(home: Home) -> None:
    """Three reports of refusals for want of DKIM pause what still goes out, with what to enter; nobody is blamed."""
    campaign = sent(home, 6, 4)
    for number, to in rows("SELECT id, recipient FROM message WHERE status = 'sent' ORDER BY id LIMIT 3"):
        assert auto_pause.suspects() == []
        words = "550 5.7.30 no valid DKIM signature"
        work.write(record.apply, Fact(number, "bounced", "dsn", words, 550, "5.7.30", to))
    assert auto_pause.suspects() == [(home.account_id, campaign.id)]
    assert work.write(auto_pause.look, home.account_id, campaign.id) == "transport"
    stopped = store.get(home.account_id, campaign.id)
    assert stopped.phase == "paused" and "_domainkey" in stopped.data["pause_detail"]
    assert rows("SELECT count(*) FROM suppression") == [(0,)]
    work.write(states.resume, home.account_id, campaign.id, By("user:1"))
    assert auto_pause.suspects() == [], "what was is theirs to answer for"
