"""The books of campaigns: nothing is said while they balance, and whatever does not is found."""

import logging
import threading
from collections.abc import Callable

import pytest

from appliance.audience.contacts import removal
from appliance.campaigns import ledger_check, states, store
from appliance.campaigns.ledger_check import LedgerChecker
from appliance.events import log
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign
from tests.domain.home import BY_API, Home
from tests.domain.test_outcomes import finish, take

KINDS = ("accepted", "permanent", "uncertain", "uncertain", "temporary", "accepted", "accepted")


@pytest.fixture
def campaign(home: Home) -> Campaign:
    """A campaign that ended in every way there is, and is completed."""
    people = [home.contact(f"p{number}@example.org") for number in range(len(KINDS) + 3)]
    home.leave("p8@example.org")
    made = home.send(home.campaign(home.list_of(*(one.id for one in people)).id))
    for kind in KINDS:
        finish(take(), kind)
    home.advance(600)
    while (claim := take()) is not None:
        finish(claim, "accepted")
    transactions.write(states.complete_finished)
    return made


def found(home: Home, campaign: Campaign, process: str | None = None) -> list[str]:
    """Return all that is wrong with the books of a campaign."""
    here = store.get(home.account_id, campaign.id)
    return ledger_check.check_quickly(here) + [
        words for part in ledger_check.check_thoroughly(here, process) for words in part
    ]


def test_books_balance(home: Home, campaign: Campaign) -> None:
    """After refusals, doubts, retries, skips, a merge and an erasure nothing differs."""
    assert store.get(home.account_id, campaign.id).status == "completed"
    assert found(home, campaign, "process") == [] and ledger_check.check_contacts(home.account_id) == []
    people = [row[0] for row in rows("SELECT id FROM contact ORDER BY id")]
    transactions.write(removal.merge, home.account_id, people[0], people[1], BY_API)
    assert found(home, campaign, "process") == [] and ledger_check.check_contacts(home.account_id) == []


def test_what_was_deleted_for_its_age_is_not_missed(home: Home, campaign: Campaign) -> None:
    """Old messages have no events any more where those are not kept; without that word the books find them."""
    transactions.write(run, "INSERT INTO cursor (name, event_id) SELECT 'flows', max(id) FROM event")
    home.advance(40 * 86_400)
    home.configure(events__keep="30d")
    log.delete_expired(threading.Event())
    assert rows("SELECT count(*) FROM event") == [(0,)]
    assert found(home, campaign, "process") == [] and ledger_check.check_contacts(home.account_id) == []
    transactions.write(run, "UPDATE account SET events_since = NULL")
    assert any("have no event" in words for words in found(home, campaign, "process"))


SENT = "(SELECT id FROM message WHERE status = 'sent' LIMIT 1)"
WRONGS: dict[str, tuple[str, str]] = {
    "a row is gone": (f"DELETE FROM message WHERE id = {SENT}", "have a row"),
    "a count fell": ("UPDATE campaign SET sent_count = sent_count - 1", "were counted as sent"),
    "a row is open": (f"UPDATE message SET status = 'queued' WHERE id = {SENT}", "rows are open"),
    "never due": (f"UPDATE message SET status = 'queued', due_at = NULL WHERE id = {SENT}", "never due"),
    "no event": ("DELETE FROM event WHERE event = 'email_sent'", "have no event"),
    "twice": (
        f"UPDATE message SET recipient_key = (SELECT recipient_key FROM message WHERE id <> {SENT}) WHERE id = {SENT}",
        "addresses have more than one row",
    ),
    "in dead hands": (
        f"UPDATE message SET status = 'sending', claimed_by = 'gone' WHERE id = {SENT}", "process that is gone",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONGS)
def test_what_does_not_balance_is_found(what: str, home: Home, campaign: Campaign) -> None:
    """Each check finds what it is for."""
    sql, words = WRONGS[what]
    transactions.write(run, sql)

    assert any(words in one for one in found(home, campaign, "process"))


def test_people_who_were_sent_more_than_is_counted(home: Home, campaign: Campaign) -> None:
    """The counts kept with people are held against the rows too."""
    transactions.write(run, "UPDATE contact SET email_sent_count = 0")

    assert "more messages than are counted" in ledger_check.check_contacts(home.account_id)[0]


@pytest.mark.parametrize("ended", [False, True])
def test_the_service_says_it_once(
    ended: bool, home: Home, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not balance is an error in the log, with numbers, once; at the end every row is looked at."""
    monkeypatch.setattr("appliance.campaigns.ledger_check._MAX_SHARE_OF_TIME", 1.0)
    made = home.send(home.campaign(home.list_of(home.contact("a@example.org").id, home.contact("b@example.org").id).id))
    keeper = LedgerChecker("process")
    finish(take(), "accepted")
    keeper.check_changed()
    assert caplog.records == []
    if ended:
        finish(take(), "accepted")
        transactions.write(states.complete_finished)
        transactions.write(run, "DELETE FROM event WHERE event = 'email_sent'")
        expected = "2 rows are sent and have no event"
    else:
        transactions.write(run, "UPDATE campaign SET audience_count = 3")
        keeper._last_checks.clear()
        expected = "3 people were written down, 2 have a row"
    for _ in range(2):
        keeper.check_changed()

    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert f"campaigns: books of campaign {made.id} do not balance: {expected}" in caplog.text


def overlap(home: Home) -> list[int]:
    """Return two lists with people in common."""
    people = [home.contact(f"p{number}@example.org").id for number in range(4)]
    return [home.list_of(*people[:3], name="One").id, home.list_of(*people[1:], name="Two").id]


def merged(home: Home) -> list[int]:
    """Return a list of two people who became one."""
    first, second = home.contact("first@example.org").id, home.contact("second@example.org").id
    made = home.list_of(first, second).id
    transactions.write(removal.merge, home.account_id, second, first, BY_API)
    return [made]


def cased(home: Home) -> list[int]:
    """Return a list into which one person was written in several ways."""
    ids = {home.contact(one).id for one in ("Ann@Example.org", "ann@example.ORG", " ann@example.org ")}
    assert len(ids) == 1
    return [home.list_of(*ids).id]


@pytest.mark.parametrize(("people", "count"), [(overlap, 4), (merged, 1), (cased, 1)])
def test_one_row_for_each_address(people: Callable[[Home], list[int]], count: int, home: Home) -> None:
    """Lists that overlap, people who became one, an address written in several ways: one row, one message (P2, P3)."""
    first, *others = people(home)
    campaign = home.campaign(first)
    transactions.write(
        run, "UPDATE trigger SET data = ? WHERE id = ?",
        (f'{{"contact_list_ids": {others}}}', campaign.trigger_id),
    )  # fmt: skip
    sent = home.send(campaign)
    keys = [row[0] for row in rows("SELECT recipient_key FROM message WHERE campaign_id = ?", (campaign.id,))]
    messages = 0
    while (claim := take()) is not None:
        messages += finish(claim, "accepted").status == "sent"

    assert sent.audience_count == len(keys) == len(set(keys)) == messages == count
    assert found(home, campaign) == []
