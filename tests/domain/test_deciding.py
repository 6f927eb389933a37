"""What a person decides about many messages at once: in parts, each row once, and only where it may."""

from collections.abc import Callable

import pytest

from appliance.accounts.acting import By
from appliance.campaigns import states, store
from appliance.sending.messages import manual_decisions
from appliance.sending.messages.manual_decisions import Part
from appliance.storage import work
from appliance.storage.models import Campaign, Message
from tests.domain.home import Home
from tests.domain.test_outcomes import finish, take

Verb = Callable[[int, Part, str], tuple[int, int]]


@pytest.fixture
def campaign(home: Home, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """A completed campaign: five messages in doubt, three refused; two rows make a part."""
    monkeypatch.setattr("appliance.sending.messages.manual_decisions._MAX_MESSAGES", 2)
    home.configure(email__in_doubt="hold")
    people = [home.contact(f"p{number}@example.org").id for number in range(8)]
    made = home.send(home.campaign(home.list_of(*people).id))
    for kind in ("uncertain", "uncertain", "expired", "uncertain", "expired", "uncertain", "uncertain", "expired"):
        finish(take(), "permanent" if kind == "expired" else kind)
    work.write(states.settle)
    return made


def decide(verb: Verb, campaign: Campaign, part: Part) -> list[int]:
    """Decide part by part, as the page does; returns how many each part was."""
    counts, more = [], True
    while more:
        count, after = work.write(verb, campaign.id, part, "user:1")
        counts.append(count)
        part, more = part._replace(after=after), after > 0
    return counts


def stats(home: Home, campaign: Campaign) -> dict[str, int]:
    """Return the sums that are not nothing."""
    return {name: count for name, count in store.get(home.account_id, campaign.id).stats.items() if count}


def test_all_in_doubt_count_as_sent(home: Home, campaign: Campaign) -> None:
    """All five, in parts, and nothing else."""
    counts = decide(manual_decisions.assume_some, campaign, Part("uncertain"))

    assert (sum(counts), max(counts)) == (5, 2)
    assert stats(home, campaign) == {"audience": 8, "sent": 5, "accepted": 5, "failed": 3}
    assert store.get(home.account_id, campaign.id).sent_count == 5


def test_those_chosen_go_again(home: Home, campaign: Campaign) -> None:
    """Only they; a number of another campaign or in another state is passed over."""
    numbers = [row.id for row in Message.select().where(Message.status == "uncertain").order_by(Message.id)]
    refused = Message.get(Message.status == "failed").id
    counts = decide(
        manual_decisions.retry_some, campaign, Part("uncertain", chosen=(numbers[0], numbers[3], refused, 4242))
    )
    while (claim := take()) is not None:
        finish(claim, "accepted")

    assert sum(counts) == 2
    assert stats(home, campaign) == {"audience": 8, "sent": 2, "accepted": 2, "failed": 3, "uncertain": 3}


def test_those_chosen_do_not_wait_for_a_clock_that_stepped_back(home: Home, campaign: Campaign) -> None:
    """What a person sends again goes at once, whatever the clock says by then."""
    assert sum(decide(manual_decisions.retry_some, campaign, Part("uncertain"))) == 5
    home.advance(-3600)
    assert take() is not None


def test_who_may_not_be_written_to_is_left(home: Home, campaign: Campaign) -> None:
    """Those refused as nobody's address are on the do-not-send list by now: sending all again sends none."""
    assert decide(manual_decisions.retry_some, campaign, Part("failed")) == [0, 0]
    assert take() is None and stats(home, campaign)["failed"] == 3


@pytest.mark.parametrize("status", ["skipped", "cancelled", "sent", "queued", ""])
def test_what_cannot_be_sent_again_is_not(status: str, home: Home, campaign: Campaign) -> None:
    """Whatever a form says, only refused messages and those in doubt go again."""
    before = stats(home, campaign)

    assert decide(manual_decisions.retry_some, campaign, Part(status)) == [0] and stats(home, campaign) == before


def test_nothing_of_a_cancelled_campaign_goes_again(home: Home) -> None:
    """Cancel is final for all at once too."""
    home.configure(email__in_doubt="hold")
    made = home.send(home.campaign(home.list_of(home.contact("a@example.org").id, home.contact("b@example.org").id).id))
    finish(take(), "uncertain")
    work.write(states.cancel, home.account_id, made.id, By("user:1"))

    assert decide(manual_decisions.retry_some, made, Part("uncertain")) == [0]
    assert stats(home, made) == {"audience": 2, "uncertain": 1, "cancelled": 1}
