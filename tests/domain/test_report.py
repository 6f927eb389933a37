"""The numbers of a campaign report: up to date at each load, with cheap queries."""

import time

import apsw
import pytest

from appliance.campaigns import recipients, report, store
from appliance.sending.messages import retries
from appliance.storage import transactions
from appliance.storage.database import connection, rows, run
from appliance.storage.models import Campaign, Message
from tests.domain.home import Home
from tests.domain.test_outcomes import claim_next, finish


@pytest.fixture
def campaign(home: Home) -> Campaign:
    """A campaign to four contacts, one of whom has unsubscribed."""
    contact_ids = [home.contact(f"p{number}@example.org").id for number in range(4)]
    home.opt_out("p3@example.org")
    return home.send(home.campaign(home.list_of(*contact_ids).id))


def reload(home: Home, campaign: Campaign) -> Campaign:
    """Return the campaign as it is stored now."""
    return store.get(home.account_id, campaign.id)


def list_problem_groups(home: Home, campaign: Campaign) -> list[tuple[str, str | None, int]]:
    """Return (status, reason, count) of each group of problems."""
    return [
        (group["status"], group["reason"], group["count"]) for group in report.list_problems(reload(home, campaign))
    ]


def test_problems_are_up_to_date(home: Home, campaign: Campaign) -> None:
    """Each load shows rejected, skipped and retried messages as they are now."""
    first = list_problem_groups(home, campaign)
    finish(claim_next(), "permanent")
    deferred_id = finish(claim_next(), "temporary").id
    second = list_problem_groups(home, campaign)
    finish(claim_next(), "permanent")
    third = list_problem_groups(home, campaign)
    home.advance(600)
    row = claim_next()
    assert row is not None and row.id == deferred_id
    finish(row, "accepted")

    assert first == [("skipped", "unsubscribed", 1)]
    assert sorted(second) == [("failed", "refused", 1), ("queued", "temporary", 1), ("skipped", "unsubscribed", 1)]
    assert third[0] == ("failed", "refused", 2) and ("queued", "temporary", 1) in third
    assert sorted(list_problem_groups(home, campaign)) == [("failed", "refused", 2), ("skipped", "unsubscribed", 1)]
    assert report.count_skips(reload(home, campaign)) == {"unsubscribed": 1}


def _store_different_replies() -> None:
    run("UPDATE message SET error_text = 'No such user ' || char(20000 + id) WHERE status = 'failed'")


def test_skips_are_counted_beside_many_different_replies(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A skip reason is counted even if more replies of servers differ than the table of problems shows."""
    monkeypatch.setattr(report, "_MAX_SHOWN", 10)
    contact_ids = [home.contact(f"p{number}@example.org").id for number in range(15)]
    home.opt_out("p0@example.org")
    campaign = home.send(home.campaign(home.list_of(*contact_ids).id))
    while (row := claim_next()) is not None:
        finish(row, "permanent")
    transactions.write(_store_different_replies)
    assert len(report.list_problems(reload(home, campaign))) == report._MAX_SHOWN
    assert report.count_skips(reload(home, campaign)) == {"unsubscribed": 1}


def test_progress_shows_the_recent_rate(home: Home, campaign: Campaign) -> None:
    """The first load has no rate; later ones have that since the load before."""
    first = report.get_progress(reload(home, campaign))
    for _ in range(2):
        finish(claim_next(), "accepted")
    started = time.monotonic()
    time.sleep(1.1)
    second = report.get_progress(reload(home, campaign))
    finish(claim_next(), "temporary")

    assert (first["per_second"], first["seconds_left"]) == (0.0, None)
    assert 0 < second["per_second"] <= 2 / (time.monotonic() - started - 0.1)
    assert report.get_progress(reload(home, campaign))["retrying"] == 1


def test_held_messages_are_no_problem(home: Home) -> None:
    """Messages not yet attempted are neither a problem nor retrying."""
    held_campaign = home.send(home.campaign(home.list_of(home.contact("a@example.org").id).id), hold_seconds=60)

    assert (
        list_problem_groups(home, held_campaign) == []
        and report.get_progress(reload(home, held_campaign))["retrying"] == 0
    )


def test_a_retried_message_is_no_longer_in_doubt(home: Home, campaign: Campaign) -> None:
    """A message in doubt that a user retries is not counted among the uncertain ones."""
    for kind in ("uncertain", "uncertain", "accepted", "uncertain", "uncertain"):
        home.advance(1)
        uncertain = finish(claim_next(), kind)
    before = list_problem_groups(home, campaign)
    transactions.write(retries.retry, home.account_id, uncertain.id, "user:1")
    after = list_problem_groups(home, campaign)

    assert ("uncertain", "in_doubt", 2) in before
    assert ("uncertain", "in_doubt", 1) in after


def test_pages_of_recipients_are_complete(home: Home) -> None:
    """Each recipient is on exactly one page, newest first, also where rows of two campaigns are interleaved."""
    list_id = home.list_of(*(home.contact(f"q{number}@example.org").id for number in range(5))).id
    first_campaign, second_campaign = (home.send(home.campaign(list_id)) for _ in range(2))
    first = Message.select().where(Message.campaign == first_campaign.id).order_by(Message.id).get()
    # One row follows those of the other campaign, as when two are sent at the same time
    Message.update(id=1_000).where(Message.id == first.id).execute()
    for campaign in (first_campaign, second_campaign):
        all_ids = [
            row.id for row in Message.select().where(Message.campaign == campaign.id).order_by(Message.id.desc())
        ]
        queries = [recipients.RecipientQuery(page=number, limit=2) for number in range(1, 5)]
        pages = [recipients.list_recipients(home.account_id, campaign.id, query) for query in queries]
        assert [[row.id for row in page.rows] for page in pages] == [all_ids[:2], all_ids[2:4], all_ids[4:], []]
        assert {page.total for page in pages} == {5}


def test_progress_queries_use_an_index(home: Home, campaign: Campaign) -> None:
    """The queries of a campaign's progress read the index of due messages without sorting."""
    statements: list[str] = []
    connection().trace_v2(apsw.SQLITE_TRACE_STMT, lambda statement: statements.append(statement["sql"]))
    try:
        report.get_progress(reload(home, campaign))
    finally:
        connection().trace_v2(0, None)
    open_rows = [sql for sql in statements if "FROM message" in sql and "due_at" in sql]
    plans = [[row[3] for row in rows(f"EXPLAIN QUERY PLAN {sql}", [0] * sql.count("?"))] for sql in open_rows]
    assert len(plans) == 2 and all("message_due (campaign_id=? AND due_at>?" in plan[0] for plan in plans), plans
    assert all(len(plan) == 1 for plan in plans)
