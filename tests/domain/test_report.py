"""The numbers of a report: what is shown is true at every look, though little is read for it."""

import time

import apsw
import pytest

from appliance.campaigns import recipients, report, store
from appliance.sending.messages import retries
from appliance.storage import transactions
from appliance.storage.database import connection, rows
from appliance.storage.models import Campaign, Message
from tests.domain.home import Home
from tests.domain.test_outcomes import finish, take


@pytest.fixture
def campaign(home: Home) -> Campaign:
    """A campaign to four people, one of whom has left."""
    people = [home.contact(f"p{number}@example.org").id for number in range(4)]
    home.leave("p3@example.org")
    return home.send(home.campaign(home.list_of(*people).id))


def fresh(home: Home, campaign: Campaign) -> Campaign:
    """Return the campaign as it is now."""
    return store.get(home.account_id, campaign.id)


def grouped(home: Home, campaign: Campaign) -> list[tuple[str, str | None, int]]:
    """Return status, reason and number of each group."""
    return [(one["status"], one["reason"], one["count"]) for one in report.list_problems(fresh(home, campaign))]


def test_problems_follow_what_happens(home: Home, campaign: Campaign) -> None:
    """Each look shows what is true now: refused, in doubt, skipped, and what waits for another attempt."""
    first = grouped(home, campaign)
    finish(take(), "permanent")
    later = finish(take(), "temporary").id
    second = grouped(home, campaign)
    finish(take(), "permanent")
    third = grouped(home, campaign)
    home.advance(600)
    claim = take()
    assert claim is not None and claim.id == later
    finish(claim, "accepted")

    assert first == [("skipped", "unsubscribed", 1)]
    assert sorted(second) == [("failed", "refused", 1), ("queued", "temporary", 1), ("skipped", "unsubscribed", 1)]
    assert third[0] == ("failed", "refused", 2) and ("queued", "temporary", 1) in third
    assert sorted(grouped(home, campaign)) == [("failed", "refused", 2), ("skipped", "unsubscribed", 1)]
    assert report.count_skips(fresh(home, campaign)) == {"unsubscribed": 1}


def test_the_rate_is_that_of_late(home: Home, campaign: Campaign) -> None:
    """The first look knows no rate; the next ones know what was sent in between."""
    first = report.get_progress(fresh(home, campaign))
    for _ in range(2):
        finish(take(), "accepted")
    begun = time.monotonic()
    time.sleep(1.1)
    second = report.get_progress(fresh(home, campaign))
    finish(take(), "temporary")

    assert (first["per_second"], first["seconds_left"]) == (0.0, None)
    assert 0 < second["per_second"] <= 2 / (time.monotonic() - begun - 0.1)
    assert report.get_progress(fresh(home, campaign))["retrying"] == 1


def test_what_is_held_waits_for_no_other_attempt(home: Home) -> None:
    """Messages that nobody tried yet are no problem, held or not."""
    made = home.send(home.campaign(home.list_of(home.contact("a@example.org").id).id), hold_seconds=60)

    assert grouped(home, made) == [] and report.get_progress(fresh(home, made))["retrying"] == 0


def test_a_message_sent_again_is_no_refusal(home: Home, campaign: Campaign) -> None:
    """One in doubt that is on its way again is shown as waiting, and as in doubt once that is how it ends again."""
    for kind in ("uncertain", "uncertain", "accepted", "uncertain", "uncertain"):
        home.advance(1)
        doubtful = finish(take(), kind)
    before = grouped(home, campaign)
    transactions.write(retries.retry, home.account_id, doubtful.id, "user:1")
    waiting = grouped(home, campaign)

    assert ("uncertain", "in_doubt", 2) in before
    assert ("uncertain", "in_doubt", 1) in waiting


def test_pages_of_people_are_the_whole(home: Home) -> None:
    """From either end, and with rows of others between, each person of a campaign stands on one page, newest first."""
    group = home.list_of(*(home.contact(f"q{number}@example.org").id for number in range(5))).id
    one, two = (home.send(home.campaign(group)) for _ in range(2))
    first = Message.select().where(Message.campaign == one.id).order_by(Message.id).get()
    # One row behind those of the other campaign, as where two are written down at the same time
    Message.update(id=1_000).where(Message.id == first.id).execute()
    for campaign in (one, two):
        every = [row.id for row in Message.select().where(Message.campaign == campaign.id).order_by(Message.id.desc())]
        asked = [recipients.RecipientQuery(page=number, limit=2) for number in range(1, 5)]
        pages = [recipients.list_recipients(home.account_id, campaign.id, query) for query in asked]
        assert [[row.id for row in page.rows] for page in pages] == [every[:2], every[2:4], every[4:], []]
        assert {page.total for page in pages} == {5}


def test_what_is_followed_sorts_nobody(home: Home, campaign: Campaign) -> None:
    """What everybody who follows a campaign asks for goes along the index of what is due, however many wait."""
    asked: list[str] = []
    connection().trace_v2(apsw.SQLITE_TRACE_STMT, lambda told: asked.append(told["sql"]))
    try:
        report.get_progress(fresh(home, campaign))
    finally:
        connection().trace_v2(0, None)
    open_rows = [sql for sql in asked if "FROM message" in sql and "due_at" in sql]
    plans = [[row[3] for row in rows(f"EXPLAIN QUERY PLAN {sql}", [0] * sql.count("?"))] for sql in open_rows]
    assert len(plans) == 2 and all("message_due (campaign_id=? AND channel=?" in plan[0] for plan in plans), plans
    assert all(len(plan) == 1 for plan in plans)
