"""Messages made ready: what stands in the way of all of them is held against none."""

import pytest

from appliance.accounts import accounts
from appliance.core import validation
from appliance.core.errors import Postponed
from appliance.sending.messages import transactional
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.messages.transactional import MessageWrite
from appliance.sending.workers.ready_queue import FairShares, Renderer
from appliance.storage import transactions
from appliance.storage.database import connection
from tests.domain.home import Home


def test_a_database_that_cannot_be_read_costs_nobody_the_message(home: Home) -> None:
    """While a table is out of reach the message waits; it is made as soon as the table is back."""
    home.send(home.campaign(home.list_of(home.contact("a@example.org").id).id))
    claims, maker = QueueReader().fetch_candidates(2), Renderer()
    try:
        transactions.write(lambda: connection().execute("ALTER TABLE template_revision RENAME TO away").fetchall())
        waiting = maker.render(claims)
        transactions.write(lambda: connection().execute("ALTER TABLE away RENAME TO template_revision").fetchall())
        made = maker.render(claims)
    finally:
        maker.close()

    assert [(one.failure and type(one.failure.error), one.failure and one.failure.skip_reason) for one in waiting] == [
        (Postponed, None)
    ]
    assert [one.failure for one in made] == [None] and made[0].prepared is not None


SLOW = "{% for a in (1..100) %}{% for b in (1..100) %}{% for c in (1..100) %}{% endfor %}{% endfor %}{% endfor %}"


def post(account_id: int, body: str) -> None:
    """Queue one message of an account."""
    asked = validation.read(MessageWrite, {"to": "ann@example.org", "subject": "x", "body": body})
    transactions.write(transactional.queue_message, account_id, asked)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_accounts_take_turns_by_the_time_that_theirs_take(home: Home, seconds: float) -> None:
    """Quick messages of another account are made before most that use up the limit; what time is over is left."""
    other = int(transactions.write(lambda: accounts.create("Other").id))
    for _ in range(30):
        post(home.account_id, SLOW)
    for _ in range(12):
        post(other, "Hello")
    maker = Renderer()
    try:
        claims = QueueReader().fetch_candidates(0, singles=60)
        made = maker.render(claims, seconds)
    finally:
        maker.close()
    assert len(claims) == 42
    slow = [one for one in made if one.claim.account_id == home.account_id]
    if seconds:
        last_quick = max(place for place, one in enumerate(made) if one.claim.account_id == other)
        assert len(made) == 42 and last_quick < 20
        assert {one.failure.skip_reason for one in slow if one.failure is not None} == {"render_error"}
    else:
        assert 1 <= len(made) <= 4


def test_a_rest_earns_nothing_and_costs_nothing() -> None:
    """Who comes back begins where those stand who worked meanwhile; what one used before the other came is past."""
    shares = FairShares()
    shares.enter([1])
    for _ in range(100):
        assert shares.next([1]) == 1
        shares.charge(1, 0.05)
    shares.enter([1, 2])
    turns = []
    for _ in range(102):
        turns.append(shares.next([1, 2]))
        shares.charge(turns[-1], 0.05 if turns[-1] == 1 else 0.001)
    assert turns[0] == 2 and 1 <= turns.count(1) <= 3
    shares.enter([1])
    assert shares.next([1]) == 1
    shares.enter([1, 2])
    assert shares.get_used(2) >= shares.get_used(1) - 0.05
