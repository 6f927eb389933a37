"""Ledger checks of campaigns: consistent ledgers give no finding, and each inconsistency is found."""

import logging
import threading
from collections.abc import Callable

import pytest

from appliance.audience.contacts import removal
from appliance.campaigns import ledger_check, states, store, variants
from appliance.campaigns.ledger_check import LedgerChecker
from appliance.campaigns.variants import ExperimentWrite, VariantWrite
from appliance.events import log
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Campaign
from tests.domain.home import BY_API, Home
from tests.domain.test_outcomes import claim_next, finish

KINDS = ("accepted", "permanent", "uncertain", "uncertain", "temporary", "accepted", "accepted")


@pytest.fixture
def campaign(home: Home) -> Campaign:
    """A completed campaign whose messages ended in every kind of outcome."""
    contacts = [home.contact(f"p{number}@example.org") for number in range(len(KINDS) + 3)]
    home.opt_out("p8@example.org")
    sent_campaign = home.send(home.campaign(home.list_of(*(contact.id for contact in contacts)).id))
    for kind in KINDS:
        finish(claim_next(), kind)
    home.advance(600)
    while (row := claim_next()) is not None:
        finish(row, "accepted")
    transactions.write(states.complete_finished)
    return sent_campaign


def find_problems(home: Home, campaign: Campaign, process: str | None = None) -> list[str]:
    """Return the findings of the quick and the thorough check of a campaign."""
    current = store.get(home.account_id, campaign.id)
    return ledger_check.check_quickly(current) + [
        finding for part in ledger_check.check_thoroughly(current, process) for finding in part
    ]


def test_a_correct_ledger_has_no_findings(home: Home, campaign: Campaign) -> None:
    """No check finds anything after rejections, uncertain messages, retries, skips and a merge."""
    assert store.get(home.account_id, campaign.id).status == "completed"
    assert find_problems(home, campaign, "process") == [] and ledger_check.check_contacts(home.account_id) == []
    contact_ids = [row[0] for row in rows("SELECT id FROM contact ORDER BY id")]
    transactions.write(removal.merge, home.account_id, contact_ids[0], contact_ids[1], BY_API)
    assert find_problems(home, campaign, "process") == [] and ledger_check.check_contacts(home.account_id) == []


def test_expired_events_are_not_reported_missing(home: Home, campaign: Campaign) -> None:
    """Messages older than the kept events may lack events; if `events_since` is unset, they are reported."""
    transactions.write(run, "INSERT INTO cursor (name, event_id) SELECT 'flows', max(id) FROM event")
    home.advance(40 * 86_400)
    home.configure(events__keep="30d")
    log.delete_expired(threading.Event())
    assert rows("SELECT count(*) FROM event") == [(0,)]
    assert find_problems(home, campaign, "process") == [] and ledger_check.check_contacts(home.account_id) == []
    transactions.write(run, "UPDATE account SET events_since = NULL")
    assert any("have no event" in finding for finding in find_problems(home, campaign, "process"))


SENT = "(SELECT id FROM message WHERE status = 'sent' LIMIT 1)"
INCONSISTENCIES: dict[str, tuple[str, str]] = {
    "a row is gone": (f"DELETE FROM message WHERE id = {SENT}", "have a message"),
    "a count fell": ("UPDATE campaign SET sent_count = sent_count - 1", "the counter of sent messages is"),
    "a row is open": (f"UPDATE message SET status = 'queued' WHERE id = {SENT}", "messages are open"),
    "never due": (f"UPDATE message SET status = 'queued', due_at = NULL WHERE id = {SENT}", "never due"),
    "no event": ("DELETE FROM event WHERE event = 'email_sent'", "have no event"),
    "twice": (
        f"UPDATE message SET recipient_key = (SELECT recipient_key FROM message WHERE id <> {SENT}) WHERE id = {SENT}",
        "addresses have more than one message",
    ),
    "in dead hands": (
        f"UPDATE message SET status = 'sending', claimed_by = 'gone' WHERE id = {SENT}", "process that has ended",
    ),
}  # fmt: skip


@pytest.mark.parametrize("inconsistency", INCONSISTENCIES)
def test_each_inconsistency_is_found(inconsistency: str, home: Home, campaign: Campaign) -> None:
    """Each changed count, row or event is reported by its check."""
    sql, expected = INCONSISTENCIES[inconsistency]
    transactions.write(run, sql)

    assert any(expected in finding for finding in find_problems(home, campaign, "process"))


def test_too_low_contact_counters_are_found(home: Home, campaign: Campaign) -> None:
    """The sent counters of contacts are checked against the ledger."""
    transactions.write(run, "UPDATE contact SET email_sent_count = 0")

    assert "more sent emails than their counter says" in ledger_check.check_contacts(home.account_id)[0]


@pytest.mark.parametrize("ended", [False, True])
def test_an_inconsistency_is_logged_once(
    ended: bool, home: Home, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An inconsistency is logged as one error with its numbers; a completed campaign is checked row by row."""
    monkeypatch.setattr("appliance.campaigns.ledger_check._MAX_SHARE_OF_TIME", 1.0)
    sent = home.send(home.campaign(home.list_of(home.contact("a@example.org").id, home.contact("b@example.org").id).id))
    checker = LedgerChecker("process")
    finish(claim_next(), "accepted")
    checker.check_changed()
    assert caplog.records == []
    if ended:
        finish(claim_next(), "accepted")
        transactions.write(states.complete_finished)
        transactions.write(run, "DELETE FROM event WHERE event = 'email_sent'")
        expected = "2 sent messages have no event"
    else:
        transactions.write(run, "UPDATE campaign SET audience_count = 3")
        checker._last_checks.clear()
        expected = "the counter of recipients is 3, but 2 have a message"
    for _ in range(2):
        checker.check_changed()

    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert f"campaigns: counters of campaign {sent.id} differ from its messages: {expected}" in caplog.text


def overlapping_lists(home: Home) -> list[int]:
    """Return the ids of two lists with members in common."""
    contact_ids = [home.contact(f"p{number}@example.org").id for number in range(4)]
    return [home.list_of(*contact_ids[:3], name="One").id, home.list_of(*contact_ids[1:], name="Two").id]


def merged_list(home: Home) -> list[int]:
    """Return the id of a list of two contacts that were merged."""
    first, second = home.contact("first@example.org").id, home.contact("second@example.org").id
    list_id = home.list_of(first, second).id
    transactions.write(removal.merge, home.account_id, second, first, BY_API)
    return [list_id]


def spellings_list(home: Home) -> list[int]:
    """Return the id of a list to which one contact was added under three spellings of its address."""
    ids = {home.contact(spelling).id for spelling in ("Ann@Example.org", "ann@example.ORG", " ann@example.org ")}
    assert len(ids) == 1
    return [home.list_of(*ids).id]


@pytest.mark.parametrize(("build", "count"), [(overlapping_lists, 4), (merged_list, 1), (spellings_list, 1)])
def test_each_address_gets_one_row_and_one_message(build: Callable[[Home], list[int]], count: int, home: Home) -> None:
    """Overlapping lists, merged contacts and spellings of an address give one row and one message each (P2, P3)."""
    first, *others = build(home)
    campaign = home.campaign(first)
    transactions.write(
        run, "UPDATE trigger SET data = ? WHERE id = ?",
        (f'{{"contact_list_ids": {others}}}', campaign.trigger_id),
    )  # fmt: skip
    sent = home.send(campaign)
    keys = [row[0] for row in rows("SELECT recipient_key FROM message WHERE campaign_id = ?", (campaign.id,))]
    messages = 0
    while (ledger_row := claim_next()) is not None:
        messages += finish(ledger_row, "accepted").status == "sent"

    assert sent.audience_count == len(keys) == len(set(keys)) == messages == count
    assert find_problems(home, campaign) == []


def test_counters_of_variants_are_compared_with_the_rows(home: Home) -> None:
    """Messages that wait for the winner are not findings; a wrong counter of a variant, or of the held-out, is."""
    contacts = [home.contact(f"v{number}@example.org") for number in range(40)]
    draft = home.campaign(home.list_of(*(contact.id for contact in contacts)).id)
    request = ExperimentWrite(variants=[VariantWrite(), VariantWrite(subject="B")], test_share=0.4, holdout=0.2)
    transactions.write(variants.apply, draft, request)
    sent_campaign = home.send(draft)

    assert rows("SELECT count(*) > 0 FROM message WHERE variant = 0 AND due_at IS NULL") == [(1,)]
    assert find_problems(home, sent_campaign) == []
    transactions.write(run, "UPDATE experiment SET held_out_count = held_out_count + 1")
    transactions.write(run, "UPDATE message SET variant = 1 WHERE variant = 2")
    problems = find_problems(home, sent_campaign)
    assert len(problems) == 3 and all(problem.startswith("the counter of variant") for problem in problems)
