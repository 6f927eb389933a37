"""Decisions about many messages at once: in batches, each row once, and only where allowed."""

from collections.abc import Callable

import pytest

from appliance.accounts.audit import Actor
from appliance.campaigns import states, store
from appliance.sending.messages import retries
from appliance.sending.messages.retries import MessageSelection
from appliance.storage import transactions
from appliance.storage.models import Campaign, Message
from tests.domain.home import Home
from tests.domain.test_outcomes import claim_next, finish

Decision = Callable[[int, MessageSelection, str], tuple[int, int]]


@pytest.fixture
def campaign(home: Home, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """A completed campaign with five messages in doubt and three rejected; a batch has two rows."""
    monkeypatch.setattr("appliance.sending.messages.retries._MAX_ROWS_PER_WRITE", 2)
    home.configure(email__in_doubt="hold")
    contact_ids = [home.contact(f"p{number}@example.org").id for number in range(8)]
    sent_campaign = home.send(home.campaign(home.list_of(*contact_ids).id))
    for kind in ("uncertain", "uncertain", "expired", "uncertain", "expired", "uncertain", "uncertain", "expired"):
        finish(claim_next(), "permanent" if kind == "expired" else kind)
    transactions.write(states.complete_finished)
    return sent_campaign


def decide_in_batches(decision: Decision, campaign: Campaign, selection: MessageSelection) -> list[int]:
    """Decide batch by batch, as the page does, and return the size of each batch."""
    counts, has_more = [], True
    while has_more:
        count, after = transactions.write(decision, campaign.id, selection, "user:1")
        counts.append(count)
        selection, has_more = selection._replace(after_id=after), after > 0
    return counts


def stats(home: Home, campaign: Campaign) -> dict[str, int]:
    """Return the campaign's statistics that are not zero."""
    return {name: count for name, count in store.get(home.account_id, campaign.id).stats.items() if count}


def test_assume_all_messages_in_doubt_sent(home: Home, campaign: Campaign) -> None:
    """All five are counted as sent, in batches, and no other message."""
    counts = decide_in_batches(retries.assume_sent_selection, campaign, MessageSelection("uncertain"))

    assert (sum(counts), max(counts)) == (5, 2)
    assert stats(home, campaign) == {"audience": 8, "sent": 5, "accepted": 5, "failed": 3}
    assert store.get(home.account_id, campaign.id).sent_count == 5


def test_retry_selected_messages(home: Home, campaign: Campaign) -> None:
    """Only selected messages in doubt are sent again; unknown ids and other states are ignored."""
    numbers = [row.id for row in Message.select().where(Message.status == "uncertain").order_by(Message.id)]
    failed_id = Message.get(Message.status == "failed").id
    counts = decide_in_batches(
        retries.retry_selection,
        campaign,
        MessageSelection("uncertain", ids=(numbers[0], numbers[3], failed_id, 4242)),
    )
    while (ledger_row := claim_next()) is not None:
        finish(ledger_row, "accepted")

    assert sum(counts) == 2
    assert stats(home, campaign) == {"audience": 8, "sent": 2, "accepted": 2, "failed": 3, "uncertain": 3}


def test_a_retry_is_due_at_once_after_a_clock_step_back(home: Home, campaign: Campaign) -> None:
    """Messages that a user sends again are due at once although the clock was set back."""
    assert sum(decide_in_batches(retries.retry_selection, campaign, MessageSelection("uncertain"))) == 5
    home.advance(-3600)
    assert claim_next() is not None


def test_retry_skips_suppressed_addresses(home: Home, campaign: Campaign) -> None:
    """Messages whose addresses were suppressed by hard bounces are not sent again."""
    assert decide_in_batches(retries.retry_selection, campaign, MessageSelection("failed")) == [0, 0]
    assert claim_next() is None and stats(home, campaign)["failed"] == 3


@pytest.mark.parametrize("status", ["skipped", "cancelled", "sent", "queued", ""])
def test_other_states_cannot_be_retried(status: str, home: Home, campaign: Campaign) -> None:
    """A selection of any other status changes nothing."""
    before = stats(home, campaign)

    assert (
        decide_in_batches(retries.retry_selection, campaign, MessageSelection(status)) == [0]
        and stats(home, campaign) == before
    )


def test_a_cancelled_campaign_cannot_be_retried(home: Home) -> None:
    """No message of a cancelled campaign is sent again."""
    home.configure(email__in_doubt="hold")
    campaign = home.send(
        home.campaign(home.list_of(home.contact("a@example.org").id, home.contact("b@example.org").id).id)
    )
    finish(claim_next(), "uncertain")
    transactions.write(states.cancel, home.account_id, campaign.id, Actor("user:1"))

    assert decide_in_batches(retries.retry_selection, campaign, MessageSelection("uncertain")) == [0]
    assert stats(home, campaign) == {"audience": 2, "uncertain": 1, "cancelled": 1}
