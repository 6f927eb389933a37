"""Rendering of due messages: failures that concern all of them, and fair shares of accounts."""

import math
from concurrent.futures import Future

import pytest

from appliance.accounts import accounts
from appliance.core import validation
from appliance.core.errors import Postponed
from appliance.core.limited_process import FairShares
from appliance.sending.messages import transactional
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.messages.transactional import MessageWrite
from appliance.sending.workers.renderer import RenderedMessage, Renderer
from appliance.storage import transactions
from appliance.storage.database import connection
from tests.domain.home import Home


def render_all(renderer: Renderer, ledger_rows: list[LedgerRow], seconds: float = math.inf) -> list[RenderedMessage]:
    """Render and sign messages in turns, and return all when they are signed."""
    turns = [*renderer.render_turns(ledger_rows, seconds)]
    return [message for turn in turns for message in (turn.result() if isinstance(turn, Future) else turn)]


def test_a_database_error_postpones_rendering(home: Home) -> None:
    """While a table cannot be read, the message is postponed; it is rendered once the table is back."""
    home.send(home.campaign(home.list_of(home.contact("a@example.org").id).id))
    ledger_rows, renderer = QueueReader().fetch_candidates(2), Renderer()
    try:
        transactions.write(lambda: connection().execute("ALTER TABLE template_revision RENAME TO away").fetchall())
        postponed = render_all(renderer, ledger_rows)
        transactions.write(lambda: connection().execute("ALTER TABLE away RENAME TO template_revision").fetchall())
        rendered = render_all(renderer, ledger_rows)
    finally:
        renderer.close()

    assert [
        (message.failure and type(message.failure.error), message.failure and message.failure.skip_reason)
        for message in postponed
    ] == [(Postponed, None)]
    assert [message.failure for message in rendered] == [None] and rendered[0].prepared is not None


SLOW = "{% for a in (1..100) %}{% for b in (1..100) %}{% for c in (1..100) %}{% endfor %}{% endfor %}{% endfor %}"


def queue_message(account_id: int, body: str) -> None:
    """Queue one transactional message of an account."""
    request = validation.read(MessageWrite, {"to": "ann@example.org", "subject": "x", "body": body})
    transactions.write(transactional.queue_message, account_id, request)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_accounts_share_rendering_time(home: Home, seconds: float) -> None:
    """Another account's quick messages are rendered before most of the slow ones; what exceeds the time is left out."""
    other = int(transactions.write(lambda: accounts.create("Other").id))
    for _ in range(30):
        queue_message(home.account_id, SLOW)
    for _ in range(12):
        queue_message(other, "Hello")
    renderer = Renderer()
    try:
        ledger_rows = QueueReader().fetch_candidates(0, singles=60)
        rendered = render_all(renderer, ledger_rows, seconds)
    finally:
        renderer.close()
    assert len(ledger_rows) == 42
    slow = [message for message in rendered if message.row.account_id == home.account_id]
    if seconds:
        last_quick = max(index for index, message in enumerate(rendered) if message.row.account_id == other)
        assert len(rendered) == 42 and last_quick < 20
        assert {message.failure.skip_reason for message in slow if message.failure is not None} == {"render_error"}
    else:
        # One turn of one account: of the slow messages fewer, because it ends after some time
        assert 1 <= len(rendered) <= 8 and len(slow) in (0, len(rendered)) and len(slow) <= 4


def test_fair_shares_ignore_idle_time() -> None:
    """An account that returns starts at the level of those that were active.

    Time used before it came does not count.
    """
    shares = FairShares()
    for _ in range(100):
        assert shares.next([1]) == 1
        shares.charge(1, 0.05)
    turns = []
    for _ in range(102):
        turns.append(shares.next([1, 2]))
        shares.charge(turns[-1], 0.05 if turns[-1] == 1 else 0.001)
    assert turns[0] == 2 and 1 <= turns.count(1) <= 3
    assert shares.next([1]) == 1
    assert shares.get_used(2) >= shares.get_used(1) - 0.05
