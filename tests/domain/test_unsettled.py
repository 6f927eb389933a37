"""The outbox read: each state counts and lists exactly the rows that are in it, of this account alone."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.sending.messages import delivery_status, prepare, retries
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import Message
from tests.domain.home import Home
from tests.domain.test_outcomes import finish, take

KINDS = ("uncertain", "permanent", "temporary", "accepted")


def plain(account_id: int, state: str) -> list[int]:
    """Return the messages in a state as the rows themselves say, without any index in mind."""
    where = {
        "waiting": "status IN ('queued', 'held')", "retrying": "status IN ('queued', 'held') AND attempts > 0",
    }.get(state, f"status = '{state}'")  # fmt: skip
    return sorted(row[0] for row in rows(f"SELECT id FROM message WHERE account_id = ? AND {where}", (account_id,)))


@pytest.fixture
def ledger(home: Home) -> Home:
    """Two campaigns on their way; in doubt is held for a person."""
    home.configure(email__in_doubt="hold", email__retry_after=[60, 60])
    for name in "ab":
        people = [home.contact(f"{name}{number}@example.org").id for number in range(6)]
        home.send(home.campaign(home.list_of(*people, name=name).id))
    return home


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(st.sampled_from(KINDS), max_size=2), size=st.integers(1, 4))
def test_every_state_is_found_whole(ledger: Home, kinds: list[str], size: int) -> None:
    """However messages end, counts and pages say the same as the rows; pages do not overlap."""
    for kind in kinds:
        claim = take()
        if claim is not None:
            finish(claim, kind)
    counts = delivery_status.count_outbox(ledger.account_id)
    for state in delivery_status.OUTBOX_STATES:
        expected = plain(ledger.account_id, state)
        seen: list[int] = []
        for page in range(1, len(expected) // size + 2):
            seen += [
                row.id for row in delivery_status.list_outbox(ledger.account_id, state, page, size, counts[state]).rows
            ]
        assert counts[state] == len(expected), state
        assert sorted(seen) == expected and len(set(seen)) == len(seen), state
        assert delivery_status.list_outbox(ledger.account_id + 1, state, 1, 10, 0).rows == [], state


def test_some_are_sent_again_whatever_they_belong_to(ledger: Home) -> None:
    """Those refused or in doubt go again, each once; what ended well, is another's or does not exist is left."""
    ended = [finish(take(), kind).id for kind in ("permanent", "uncertain", "accepted")]
    ended.append(Message.get(Message.status == "queued").id)
    transactions.write(run, "UPDATE message SET status = 'failed' WHERE id = ?", (ended[-1],))
    again = transactions.write(retries.retry_by_ids, ledger.account_id, [*ended, 4242], "user:1")
    nobodys = transactions.write(retries.retry_by_ids, ledger.account_id + 1, ended, "user:1")
    twice = transactions.write(retries.retry_by_ids, ledger.account_id, ended, "user:1")

    assert (again, nobodys, twice) == (2, 0, 0)
    assert [Message.get_by_id(one).status for one in ended] == ["failed", "queued", "sent", "queued"]


def test_a_glance_says_what_the_queue_does(ledger: Home) -> None:
    """It is busy while something may go, idle once all is done, and stopped when a person says so."""
    before = delivery_status.read_summary(ledger.account_id)
    while (claim := take()) is not None:
        finish(claim, "accepted")
    done = delivery_status.read_summary(ledger.account_id)
    transactions.write(run, "UPDATE account SET sending_stopped = 1")

    assert (before.state, before.waiting, before.due) == ("busy", 12, 12)
    assert (done.state, done.waiting) == ("idle", 0)
    assert delivery_status.read_summary(ledger.account_id).state == "stopped"


def test_the_source_is_what_would_leave(ledger: Home) -> None:
    """It is the whole mail with its headers; of an erased recipient there is none, and the reason is said."""
    row = Message.select().order_by(Message.id).first()
    source = prepare.get_source(ledger.account_id, row.id)

    assert f"To: {row.recipient}".encode() in source and b"Message-ID:" in source
    Message.update(recipient=None, recipient_key=None).where(Message.id == row.id).execute()
    with pytest.raises(prepare.NotReproducible, match="erased"):
        prepare.get_source(ledger.account_id, row.id)
