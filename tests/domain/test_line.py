"""The line: what may be taken next, each row once, past those that get nothing now, however many they are."""

import random
import time

from appliance.accounts import accounts
from appliance.accounts.audit import Actor
from appliance.campaigns import states
from appliance.core import clock, validation
from appliance.core.errors import Uncertain
from appliance.sending.delivery.mx_routes import get_address_group
from appliance.sending.messages import queue, transactional
from appliance.sending.messages.ledger import Claim, Outcome
from appliance.sending.messages.queue_reader import AFTER_POSITION, QueueReader, Source, build_open_condition
from appliance.sending.messages.transactional import MessageWrite
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home


def crowd(home: Home, *addresses: str, name: str = "Spring") -> int:
    """Send a campaign to these addresses and answer its id."""
    known = {home.contact(address).id for address in addresses}
    return home.send(home.campaign(home.list_of(*known, name=name).id, name=name)).id


def many(home: Home, *counts: tuple[int, str], name: str = "Spring") -> int:
    """Make a campaign of very many rows, in this order by domain, and answer its id."""
    number = crowd(home, "first@example.org", name=name)
    columns = [row[1] for row in rows("PRAGMA table_info(message)")]
    kept = [column for column in columns if column not in ("id", "contact_id", "recipient", "recipient_key")]
    for count, domain in counts:
        transactions.write(
            run,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            f"INSERT INTO message ({', '.join(kept)}, recipient, recipient_key) "
            f"SELECT {', '.join('m.' + one for one in kept)}, n.i || ?, n.i || ? FROM n, message m "
            "WHERE m.recipient_key = 'first@example.org' AND m.campaign_id = ?",
            (count, domain, domain, number),
        )
    return number


def finish(row: Claim) -> None:
    """Let a row be sent."""
    transactions.write(run, "UPDATE message SET status = 'sent', due_at = NULL WHERE id = ?", (row.id,))


def test_a_silent_group_does_not_hold_up_the_others(home: Home) -> None:
    """Behind 5,000 rows of a group that gets nothing, the others come one after the other; later the group does too."""
    many(home, (5000, "@gmail.com"), (300, "@bakery.example"), (20, "@gmail.com"))
    line, got = QueueReader(), []
    for _ in range(40):
        found = line.fetch_candidates(40, frozenset(), room={"google": 0})
        got += found
        for row in found:
            finish(row)
        if not found and not line.has_more:
            break
    assert sorted({get_address_group(row.recipient_key) for row in got}) == ["bakery.example", "example.org"]
    assert len(got) == 301 and line.get_blocked_groups() == {"google"}
    opened = line.fetch_candidates(40, frozenset(), room={"google": 3})
    assert [row.recipient_key for row in opened] == ["1@gmail.com", "2@gmail.com", "3@gmail.com"]
    for row in opened:
        finish(row)
    rest = []
    while found := line.fetch_candidates(500, frozenset()):
        rest += found
        for row in found:
            finish(row)
    assert len(rest) == 5017


def test_a_large_number_in_hand_costs_little(home: Home) -> None:
    """Each answer reads on where the last one ended: no row twice, and the last as quickly as the first."""
    many(home, (20_000, "@bakery.example"))
    line, taken, times = QueueReader(), set(), []
    for _ in range(100):
        begun = time.perf_counter()
        found = line.fetch_candidates(200, frozenset(taken))
        times.append(time.perf_counter() - begun)
        assert not taken & {row.id for row in found}
        taken |= {row.id for row in found}
    assert len(taken) == 20_000
    assert sum(times[-20:]) < 3 * sum(times[:20]) + 0.05


def test_what_comes_back_comes_again(home: Home) -> None:
    """A row that was answered and did not go is answered again, once; one that went is not."""
    many(home, (50, "@bakery.example"))
    line = QueueReader()
    first = line.fetch_candidates(10)
    finish(first[0])
    taken = frozenset(row.id for row in first[2:])
    for row in first[:2]:
        line.give_back(row)
    rest = [row.id for _ in range(8) for row in line.fetch_candidates(10, taken)]
    assert rest.count(first[1].id) >= 1 and first[0].id not in rest


def test_campaigns_take_turns_and_single_messages_come_first(home: Home) -> None:
    """Every live campaign has its share of each answer, none more than its rows, and what is held back none."""
    one = crowd(home, *[f"a{n}@a.example" for n in range(30)], name="A")
    two = crowd(home, *[f"b{n}@b.example" for n in range(4)], name="B")
    three = crowd(home, *[f"c{n}@c.example" for n in range(30)], name="C")
    transactions.write(states.pause, home.account_id, three, Actor("key:1"))
    found = QueueReader().fetch_candidates(12)
    counted = {number: sum(row.campaign_id == number for row in found) for number in (one, two, three)}
    assert counted[two] == 4 and counted[three] == 0 and 6 <= counted[one] <= 8
    assert [row.campaign_id for row in found[:4]].count(two) == 2
    assert {row.campaign_id for row in QueueReader().fetch_candidates(12, held=(one,))} == {two}


def test_whatever_opens_and_closes_every_row_comes_once(home: Home) -> None:
    """Groups that open and close at random, rows that come back or are tried again later: all are sent, none twice."""
    domains = ["@gmail.com", "@yahoo.com", "@bakery.example", "@mill.example"]
    for seed in range(5):
        chance = random.Random(seed)
        counts = [(chance.randrange(1, 400), chance.choice(domains)) for _ in range(6)]
        many_id = many(home, *counts, name=f"s{seed}")
        line, sent, taken = QueueReader(), [], {}
        for turn in range(2000):
            limited = [name for name in ("google", "yahoo") if turn < 150 and chance.random() < 0.7]
            room = {name: chance.choice([0, 0, 2, 50]) for name in limited}
            for row in line.fetch_candidates(chance.choice([1, 20, 60]), frozenset(taken), room=room):
                assert row.id not in taken
                taken[row.id] = row
            for row in [row for row in taken.values() if chance.random() < 0.5]:
                del taken[row.id]
                if chance.random() < 0.1:
                    line.give_back(row)
                elif chance.random() < 0.05:
                    now = clock.now_ms()
                    transactions.write(run, "UPDATE message SET due_at = ? WHERE id = ?", (now, row.id))
                else:
                    finish(row)
                    sent.append(row.id)
            if not taken and turn > 150 and not rows("SELECT 1 FROM message WHERE status = 'queued' LIMIT 1"):
                break
        assert (
            len(sent)
            == len(set(sent))
            == rows("SELECT count(*) FROM message WHERE campaign_id = ? AND status = 'sent'", (many_id,))[0][0]
        )
        assert rows("SELECT count(*) FROM message WHERE status = 'queued'") == [(0,)]


def test_reading_uses_the_index(home: Home) -> None:
    """Where the reading goes on is found in the index, for campaigns, for flows and for single messages."""
    many(home, (10, "@bakery.example"))
    for source, index in (
        (Source("campaign", 1), "message_due (campaign_id=? AND channel=? AND "),
        (Source("single", 1), "message_due_alone (account_id=? AND channel=? AND "),
        (Source("flow", 1), "message_due_of_flows (account_id=? AND channel=? AND "),
    ):
        of, whose = build_open_condition(source, "email")
        for where, how in zip(AFTER_POSITION, ("due_at=? AND id>?", "due_at>? AND due_at<?"), strict=True):
            plan = str(
                rows(
                    f"EXPLAIN QUERY PLAN SELECT * FROM message WHERE {of} AND {where} ORDER BY due_at, id",
                    (*whose, 1, 1),
                )
            )
            assert f"{index}{how})" in plan and "TEMP B-TREE" not in plan, plan


def test_what_is_new_comes_at_once_beside_what_is_stepped_over(home: Home) -> None:
    """Behind rows that wait and rows tried again, a new single message and new rows of a campaign are found at once."""
    number = many(home, (30, "@gmail.com"), (2, "@bakery.example"))
    transactions.write(
        run, "UPDATE message SET due_at = ? WHERE recipient_key = '1@bakery.example'", (clock.now_ms() - 1000,)
    )
    line, closed = QueueReader(), {"google": 0}
    for address in ("a@gmail.com", "b@gmail.com"):
        single(home, address)
    first = line.fetch_candidates(50, room=closed)
    assert {row.recipient_key for row in first} == {"first@example.org", "1@bakery.example", "2@bakery.example"}
    for row in first:
        finish(row)
    assert line.fetch_candidates(50, room=closed) == [] and not line.has_more
    single(home, "new@bakery.example")
    columns = [row[1] for row in rows("PRAGMA table_info(message)") if row[1] not in ("id", "contact_id")]
    kept = ", ".join(column for column in columns if column != "recipient_key")
    transactions.write(
        run,
        f"INSERT INTO message ({kept}, recipient_key) SELECT {kept}, 'late@bakery.example' FROM message "
        "WHERE recipient_key = '30@gmail.com' AND campaign_id = ?",
        (number,),
    )
    found = [row.recipient_key for row in line.fetch_candidates(50, room=closed)]
    assert found == ["new@bakery.example", "late@bakery.example"]


def single(home: Home, address: str) -> None:
    """Queue one single message."""
    body = {"to": address, "subject": "Receipt", "body": "<p>Thanks</p>"}
    transactions.write(transactional.queue_message, home.account_id, validation.read(MessageWrite, body))


def test_a_repeat_does_not_wait_for_a_group_that_gets_nothing(home: Home) -> None:
    """Read to the end, with a silent group stepped over, a campaign's message that goes again is found at once."""
    crowd(home, "ana@example.org", "a@gmail.com", "bob@example.org")
    line = QueueReader()
    first, second = line.fetch_candidates(10, room={"google": 0})
    transactions.write(queue.record_and_claim, [], [first], "process")
    finish(second)
    assert line.fetch_candidates(10, frozenset({first.id}), room={"google": 0}) == []
    transactions.write(queue.record_and_claim, [Outcome(first, Uncertain("the connection broke"))], [], "process")
    assert [row.id for row in line.fetch_candidates(10, room={"google": 0})] == [first.id]


def test_accounts_share_each_answer(home: Home) -> None:
    """However much one account has waiting, others get as many rows of each answer, and who used least comes first."""
    for number in range(60):
        single(home, f"a{number}@example.org")
    campaign = many(home, (500, "@bakery.example"))
    other = int(transactions.write(lambda: accounts.create("Other").id))
    last = "(SELECT max(id) FROM message)"
    transactions.write(run, f"UPDATE message SET account_id = ? WHERE id = {last} - 501", (other,))
    line = QueueReader()
    assert [row.account_id for row in line.fetch_candidates(0, singles=10)].count(other) == 1
    used = {home.account_id: 5.0, other: 0.1}
    assert QueueReader().fetch_candidates(10, used=lambda account_id: used[account_id])[0].account_id == other
    transactions.write(run, "UPDATE campaign SET account_id = ? WHERE id = ?", (other, campaign))
    transactions.write(run, "UPDATE message SET account_id = ? WHERE campaign_id = ?", (other, campaign))
    crowd(home, *(f"c{number}@example.org" for number in range(30)), name="Mine")
    found = QueueReader().fetch_candidates(20, singles=0)
    assert [row.account_id for row in found].count(other) == 10 == len(found) - 10
