"""The queue reader: returns each row that may be claimed once, and skips blocked rows, however many there are."""

import random
import time

import pytest

from appliance.accounts import accounts
from appliance.accounts.audit import Actor
from appliance.campaigns import states
from appliance.core import clock, validation
from appliance.core.errors import Uncertain
from appliance.sending.delivery.mx_routes import get_address_group
from appliance.sending.messages import queue, transactional
from appliance.sending.messages.ledger import FLOWS_DUE_NOW, LedgerRow, Outcome
from appliance.sending.messages.queue_reader import AFTER_POSITION, QueueReader, Source, build_open_condition
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home
from tests.domain.test_bulk_send import queue as queue_newsletter
from tests.domain.test_flow_run import create_live_flow, start_runs


def send_campaign(home: Home, *addresses: str, name: str = "Spring") -> int:
    """Send a campaign to these addresses and return its id."""
    contact_ids = {home.contact(address).id for address in addresses}
    return home.send(home.campaign(home.list_of(*contact_ids, name=name).id, name=name)).id


def send_large_campaign(home: Home, *counts: tuple[int, str], name: str = "Spring") -> int:
    """Create a campaign with `count` rows for each domain, in this order, and return its id."""
    number = send_campaign(home, "first@example.org", name=name)
    columns = [row[1] for row in rows("PRAGMA table_info(message)")]
    copied = [column for column in columns if column not in ("id", "contact_id", "recipient", "recipient_key")]
    for count, domain in counts:
        transactions.write(
            run,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            f"INSERT INTO message ({', '.join(copied)}, recipient, recipient_key) "
            f"SELECT {', '.join('m.' + column for column in copied)}, n.i || ?, n.i || ? FROM n, message m "
            "WHERE m.recipient_key = 'first@example.org' AND m.campaign_id = ?",
            (count, domain, domain, number),
        )
    return number


def mark_sent(row: LedgerRow) -> None:
    """Mark a row as sent."""
    transactions.write(run, "UPDATE message SET status = 'sent', due_at = NULL WHERE id = ?", (row.id,))


def test_a_blocked_group_does_not_delay_other_groups(home: Home) -> None:
    """Rows behind 5,000 of a blocked recipient group are returned; the group's own rows follow once it has room."""
    send_large_campaign(home, (5000, "@gmail.com"), (300, "@bakery.example"), (20, "@gmail.com"))
    reader, candidates = QueueReader(), []
    for _ in range(40):
        batch = reader.fetch_candidates(40, frozenset(), room={"google": 0})
        candidates += batch
        for row in batch:
            mark_sent(row)
        if not batch and not reader.has_more:
            break
    assert sorted({get_address_group(row.recipient_key) for row in candidates}) == ["bakery.example", "example.org"]
    assert len(candidates) == 301 and reader.get_parked_groups() == {"google"}
    opened = reader.fetch_candidates(40, frozenset(), room={"google": 3})
    assert [row.recipient_key for row in opened] == ["1@gmail.com", "2@gmail.com", "3@gmail.com"]
    for row in opened:
        mark_sent(row)
    rest = []
    while batch := reader.fetch_candidates(500, frozenset()):
        rest += batch
        for row in batch:
            mark_sent(row)
    assert len(rest) == 5017


def test_fetches_stay_fast_with_many_claimed_rows(home: Home) -> None:
    """No row is returned twice, and the last of 100 fetches are about as fast as the first."""
    send_large_campaign(home, (20_000, "@bakery.example"))
    reader, taken, times = QueueReader(), set(), []
    for _ in range(100):
        started = time.perf_counter()
        candidates = reader.fetch_candidates(200, frozenset(taken))
        times.append(time.perf_counter() - started)
        assert not taken & {row.id for row in candidates}
        taken |= {row.id for row in candidates}
    assert len(taken) == 20_000
    assert sum(times[-20:]) < 3 * sum(times[:20]) + 0.05


def test_rows_given_back_are_returned_again(home: Home) -> None:
    """A row that is given back and is still queued is returned again; a sent one is not."""
    send_large_campaign(home, (50, "@bakery.example"))
    reader = QueueReader()
    first = reader.fetch_candidates(10)
    mark_sent(first[0])
    taken = frozenset(row.id for row in first[2:])
    for row in first[:2]:
        reader.give_back(row)
    rest = [row.id for _ in range(8) for row in reader.fetch_candidates(10, taken)]
    assert rest.count(first[1].id) >= 1 and first[0].id not in rest


def test_live_campaigns_share_each_fetch(home: Home) -> None:
    """Each sending campaign gets a share of a fetch, at most its own rows; a paused or held one gets none."""
    large = send_campaign(home, *[f"a{n}@a.example" for n in range(30)], name="A")
    small = send_campaign(home, *[f"b{n}@b.example" for n in range(4)], name="B")
    paused = send_campaign(home, *[f"c{n}@c.example" for n in range(30)], name="C")
    transactions.write(states.pause, home.account_id, paused, Actor("key:1"))
    candidates = QueueReader().fetch_candidates(12)
    counted = {number: sum(row.campaign_id == number for row in candidates) for number in (large, small, paused)}
    assert counted[small] == 4 and counted[paused] == 0 and 6 <= counted[large] <= 8
    assert [row.campaign_id for row in candidates[:4]].count(small) == 2
    assert {row.campaign_id for row in QueueReader().fetch_candidates(12, held=(Source("campaign", large),))} == {small}


@pytest.mark.full
def test_each_row_is_sent_once_while_groups_open_and_close(home: Home) -> None:
    """With groups that open and close at random, and rows given back or rescheduled, each row is sent exactly once."""
    domains = ["@gmail.com", "@yahoo.com", "@bakery.example", "@mill.example"]
    for seed in range(5):
        chance = random.Random(seed)
        counts = [(chance.randrange(1, 400), chance.choice(domains)) for _ in range(6)]
        many_id = send_large_campaign(home, *counts, name=f"s{seed}")
        reader, sent, taken = QueueReader(), [], {}
        for turn in range(2000):
            limited = [name for name in ("google", "yahoo") if turn < 150 and chance.random() < 0.7]
            room = {name: chance.choice([0, 0, 2, 50]) for name in limited}
            for row in reader.fetch_candidates(chance.choice([1, 20, 60]), frozenset(taken), room=room):
                assert row.id not in taken
                taken[row.id] = row
            for row in [row for row in taken.values() if chance.random() < 0.5]:
                del taken[row.id]
                if chance.random() < 0.1:
                    reader.give_back(row)
                elif chance.random() < 0.05:
                    now = clock.now_ms()
                    transactions.write(run, "UPDATE message SET due_at = ? WHERE id = ?", (now, row.id))
                else:
                    mark_sent(row)
                    sent.append(row.id)
            if not taken and turn > 150 and not rows("SELECT 1 FROM message WHERE status = 'queued' LIMIT 1"):
                break
        assert (
            len(sent)
            == len(set(sent))
            == rows("SELECT count(*) FROM message WHERE campaign_id = ? AND status = 'sent'", (many_id,))[0][0]
        )
        assert rows("SELECT count(*) FROM message WHERE status = 'queued'") == [(0,)]


def test_queue_queries_use_an_index(home: Home) -> None:
    """The next rows of campaigns, flows and single messages are found in an index, without sorting."""
    send_large_campaign(home, (10, "@bakery.example"))
    for source, index in (
        (Source("campaign", 1), "message_due (campaign_id=? AND "),
        (Source("single", 1), "message_due_alone (account_id=? AND channel=? AND "),
        (Source("flow", 1), "message_due_of_flows (account_id=? AND channel=? AND "),
    ):
        condition, parameters = build_open_condition(source, "email")
        row_id = "rowid" if source.kind == "campaign" else "id"
        for position, key in zip(AFTER_POSITION, (f"due_at=? AND {row_id}>?", "due_at>? AND due_at<?"), strict=True):
            plan = str(
                rows(
                    f"EXPLAIN QUERY PLAN SELECT * FROM message WHERE {condition} AND {position} ORDER BY due_at, id",
                    (*parameters, 1, 1),
                )
            )
            assert f"{index}{key})" in plan and "TEMP B-TREE" not in plan, plan


def test_new_rows_are_found_past_blocked_ones(home: Home) -> None:
    """Past blocked and retried rows, a new single message and new rows of a campaign are found by the next fetch."""
    number = send_large_campaign(home, (30, "@gmail.com"), (2, "@bakery.example"))
    transactions.write(
        run, "UPDATE message SET due_at = ? WHERE recipient_key = '1@bakery.example'", (clock.now_ms() - 1000,)
    )
    reader, closed = QueueReader(), {"google": 0}
    for address in ("a@gmail.com", "b@gmail.com"):
        queue_single_message(home, address)
    first = reader.fetch_candidates(50, room=closed)
    assert {row.recipient_key for row in first} == {"first@example.org", "1@bakery.example", "2@bakery.example"}
    for row in first:
        mark_sent(row)
    assert reader.fetch_candidates(50, room=closed) == [] and not reader.has_more
    queue_single_message(home, "new@bakery.example")
    columns = [row[1] for row in rows("PRAGMA table_info(message)") if row[1] not in ("id", "contact_id")]
    copied = ", ".join(column for column in columns if column != "recipient_key")
    transactions.write(
        run,
        f"INSERT INTO message ({copied}, recipient_key) SELECT {copied}, 'late@bakery.example' FROM message "
        "WHERE recipient_key = '30@gmail.com' AND campaign_id = ?",
        (number,),
    )
    recipients = [row.recipient_key for row in reader.fetch_candidates(50, room=closed)]
    assert recipients == ["new@bakery.example", "late@bakery.example"]


def queue_single_message(home: Home, address: str) -> None:
    """Queue one transactional message to an address."""
    body = {"to": address, "subject": "Receipt", "body": "<p>Thanks</p>"}
    transactions.write(transactional.queue_message, home.account_id, validation.read(MessageWrite, body))


def test_a_new_single_message_does_not_wait_for_a_newsletter_of_a_program(home: Home) -> None:
    """While thousands of emails of one request are read, the next fetch returns a password that was queued since."""
    queue_newsletter(home, *(f"p{number}" for number in range(100)))
    reader, taken = QueueReader(), set[int]()
    for _ in range(3):
        taken.update(row.id for row in reader.fetch_candidates(10, taken))
    queue_single_message(home, "password@bakery.example")
    candidates = reader.fetch_candidates(10, taken)
    assert candidates[0].recipient_key == "password@bakery.example"
    assert len(candidates) == 10 and not taken & {row.id for row in candidates}


def turn_into_flow_messages(home: Home) -> None:
    """Make all messages those of a flow, each of a run of its contact."""
    flow = create_live_flow(home, [{"id": 1, "type": "wait", "duration": 60}])
    messages = rows("SELECT id, contact_id FROM message ORDER BY id")
    run_ids = start_runs(home, flow, *(contact_id for _, contact_id in messages))
    for (message_id, _), run_id in zip(messages, run_ids, strict=True):
        sql = "UPDATE message SET campaign_id = NULL, flow_id = ?, run_id = ?, due_at = ? WHERE id = ?"
        transactions.write(run, sql, (flow.id, run_id, FLOWS_DUE_NOW, message_id))


@pytest.mark.parametrize("source", ["campaign", "flow"])
def test_a_retry_is_found_past_a_blocked_group(source: str, home: Home) -> None:
    """Once the reader has passed a blocked group and reached the end, the next fetch finds a message to retry."""
    send_campaign(home, "ana@example.org", "a@gmail.com", "bob@example.org")
    if source == "flow":
        turn_into_flow_messages(home)
    reader = QueueReader()
    first, second = reader.fetch_candidates(10, room={"google": 0})
    transactions.write(queue.claim, [first], "process")
    mark_sent(second)
    assert reader.fetch_candidates(10, frozenset({first.id}), room={"google": 0}) == []
    transactions.write(queue.record, [Outcome(first, Uncertain("the connection broke"))])
    assert [row.id for row in reader.fetch_candidates(10, room={"google": 0})] == [first.id]


def test_accounts_share_each_fetch(home: Home) -> None:
    """Accounts get equal shares of a fetch, however many messages one has queued.

    The one that used least comes first.
    """
    for number in range(60):
        queue_single_message(home, f"a{number}@example.org")
    campaign = send_large_campaign(home, (500, "@bakery.example"))
    other = int(transactions.write(lambda: accounts.create("Other").id))
    last_id_query = "(SELECT max(id) FROM message)"
    transactions.write(run, f"UPDATE message SET account_id = ? WHERE id = {last_id_query} - 501", (other,))
    reader = QueueReader()
    assert [row.account_id for row in reader.fetch_candidates(0, singles=10)].count(other) == 1
    used = {home.account_id: 5.0, other: 0.1}
    assert QueueReader().fetch_candidates(10, get_used=lambda account_id: used[account_id])[0].account_id == other
    transactions.write(run, "UPDATE campaign SET account_id = ? WHERE id = ?", (other, campaign))
    transactions.write(run, "UPDATE message SET account_id = ? WHERE campaign_id = ?", (other, campaign))
    send_campaign(home, *(f"c{number}@example.org" for number in range(30)), name="Mine")
    candidates = QueueReader().fetch_candidates(20, singles=0)
    assert [row.account_id for row in candidates].count(other) == 10 == len(candidates) - 10


def test_transports_are_chosen_only_for_rows_that_may_be_returned(home: Home) -> None:
    """A row that is taken or above the limit gets no transport, and only a returned one counts as using it."""
    send_large_campaign(home, (20, "@bakery.example"), (20, "@gmail.com"))
    chooser = RecordingChooser()
    taken = frozenset(row.id for row in QueueReader().fetch_candidates(5))
    candidates = QueueReader().fetch_candidates(5, taken, room={"google": 1}, chooser=chooser)
    assert len(candidates) == 5 and chooser.chosen == chooser.used == candidates
    chooser = RecordingChooser()
    candidates = QueueReader().fetch_candidates(5, taken, room={"bakery.example": 1, "google": 2}, chooser=chooser)
    assert len(candidates) == 3 and chooser.used == candidates and len(chooser.chosen) > 3


class RecordingChooser:
    """Keeps the stored transports, and lists the rows that it was called with."""

    def __init__(self) -> None:
        self.chosen: list[LedgerRow] = []
        self.used: list[LedgerRow] = []

    def choose(self, row: LedgerRow) -> LedgerRow:
        """Return the row as it is stored."""
        self.chosen.append(row)
        return row

    def use(self, row: LedgerRow) -> None:
        """List a row that is returned."""
        self.used.append(row)
