"""What a person decides about many messages at once: in parts, each row once, and only where it may."""

from collections.abc import Callable

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import states, store
from appliance.sending.messages import retries
from appliance.sending.messages.retries import MessageSelection
from appliance.storage import transactions
from appliance.storage.models import Campaign, Message
from tests.domain.home import Home
from tests.domain.test_outcomes import finish, take

Verb = Callable[[int, MessageSelection, str], tuple[int, int]]


@pytest.fixture
def campaign(home: Home, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """A completed campaign: five messages in doubt, three refused; two rows make a part."""
    monkeypatch.setattr("appliance.sending.messages.retries._MAX_BATCH_ROWS", 2)
    home.configure(email__in_doubt="hold")
    people = [home.contact(f"p{number}@example.org").id for number in range(8)]
    made = home.send(home.campaign(home.list_of(*people).id))
    for kind in ("uncertain", "uncertain", "expired", "uncertain", "expired", "uncertain", "uncertain", "expired"):
        finish(take(), "permanent" if kind == "expired" else kind)
    transactions.write(states.complete_finished)
    return made


def decide(verb: Verb, campaign: Campaign, part: MessageSelection) -> list[int]:
    """Decide part by part, as the page does; returns how many each part was."""
    counts, more = [], True
    while more:
        count, after = transactions.write(verb, campaign.id, part, "user:1")
        counts.append(count)
        part, more = part._replace(after_id=after), after > 0
    return counts


def stats(home: Home, campaign: Campaign) -> dict[str, int]:
    """Return the sums that are not nothing."""
    return {name: count for name, count in store.get(home.account_id, campaign.id).stats.items() if count}


def test_all_in_doubt_count_as_sent(home: Home, campaign: Campaign) -> None:
    """All five, in parts, and nothing else."""
    counts = decide(retries.assume_sent_batch, campaign, MessageSelection("uncertain"))

    assert (sum(counts), max(counts)) == (5, 2)
    assert stats(home, campaign) == {"audience": 8, "sent": 5, "accepted": 5, "failed": 3}
    assert store.get(home.account_id, campaign.id).sent_count == 5


def test_those_chosen_go_again(home: Home, campaign: Campaign) -> None:
    """Only they; a number of another campaign or in another state is passed over."""
    numbers = [row.id for row in Message.select().where(Message.status == "uncertain").order_by(Message.id)]
    refused = Message.get(Message.status == "failed").id
    counts = decide(
        retries.retry_batch,
        campaign,
        MessageSelection("uncertain", ids=(numbers[0], numbers[3], refused, 4242)),
    )
    while (claim := take()) is not None:
        finish(claim, "accepted")

    assert sum(counts) == 2
    assert stats(home, campaign) == {"audience": 8, "sent": 2, "accepted": 2, "failed": 3, "uncertain": 3}


def test_those_chosen_do_not_wait_for_a_clock_that_stepped_back(home: Home, campaign: Campaign) -> None:
    """What a person sends again goes at once, whatever the clock says by then."""
    assert sum(decide(retries.retry_batch, campaign, MessageSelection("uncertain"))) == 5
    home.advance(-3600)
    assert take() is not None


def test_who_may_not_be_written_to_is_left(home: Home, campaign: Campaign) -> None:
    """Those refused as nobody's address are on the do-not-send list by now: sending all again sends none."""
    assert decide(retries.retry_batch, campaign, MessageSelection("failed")) == [0, 0]
    assert take() is None and stats(home, campaign)["failed"] == 3


@pytest.mark.parametrize("status", ["skipped", "cancelled", "sent", "queued", ""])
def test_what_cannot_be_sent_again_is_not(status: str, home: Home, campaign: Campaign) -> None:
    """Whatever a form says, only refused messages and those in doubt go again."""
    before = stats(home, campaign)

    assert decide(retries.retry_batch, campaign, MessageSelection(status)) == [0] and stats(home, campaign) == before


def test_nothing_of_a_cancelled_campaign_goes_again(home: Home) -> None:
    """Cancel is final for all at once too."""
    home.configure(email__in_doubt="hold")
    made = home.send(home.campaign(home.list_of(home.contact("a@example.org").id, home.contact("b@example.org").id).id))
    finish(take(), "uncertain")
    transactions.write(states.cancel, home.account_id, made.id, Actor("user:1"))

    assert decide(retries.retry_batch, made, MessageSelection("uncertain")) == [0]
    assert stats(home, made) == {"audience": 2, "uncertain": 1, "cancelled": 1}
