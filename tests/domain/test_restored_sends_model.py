"""Any order of sends, backups, kills, losses and restores: nobody gets a message twice by itself, and nobody is missed.

After each restore a person resumes everything without reading anything. Only a message that was being sent when the
database was lost, with the send log of the last moment, may be sent again.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from appliance.sending.messages import queue
from appliance.sending.messages.ledger import LedgerRow
from appliance.storage import transactions
from appliance.storage.database import rows, scalar
from appliance.storage.models import Flow
from tests.domain.home import Home
from tests.domain.restored_home import RestoredHome
from tests.domain.test_flow_messages import create_flow_with_messages
from tests.domain.test_flow_run import advance_until_idle, start_runs
from tests.kit.sampling import examples

CONTACT_COUNT = 6
STEPS: list[dict[str, Any]] = [
    {"id": 1, "type": "email"}, {"id": 2, "type": "wait", "duration": 60}, {"id": 3, "type": "email"},
]  # fmt: skip
Action = tuple[str, int, bool]
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("claim"), st.integers(1, 3), st.booleans()),
        st.tuples(
            st.sampled_from(["launch", "enrol", "pass_time", "back_up", "kill"]), st.integers(1, 3), st.just(True)
        ),
        st.tuples(st.just("restore"), st.integers(0, 3), st.booleans()),
    ),
    max_size=12,
)


class Model:
    """What a server accepted, by the name of the campaign or the run and step, and by recipient."""

    def __init__(self, directory: Path) -> None:
        self.home = Home(directory)
        self.world = RestoredHome(self.home)
        self.contacts = [self.home.contact(f"p{number}@acme.test").id for number in range(CONTACT_COUNT)]
        self.list_id = self.home.list_of(*self.contacts).id
        self.flow_id = create_flow_with_messages(self.home, [dict(step) for step in STEPS]).id
        self.accepted: dict[tuple[str, str], int] = {}
        self.unsettled: set[tuple[str, str]] = set()  # accepted, and not in the ledger yet
        self.excused: set[tuple[str, str]] = set()  # of these, what was lost with the database
        self.copies = [self.world.back_up()]
        self.names = 0
        self.launch(1, True)

    def close(self) -> None:
        """Close the installation."""
        self.world.close()
        self.home.close()

    def launch(self, _: int, __: bool) -> None:
        """Send a new campaign to everybody."""
        self.names += 1
        self.home.send(self.home.campaign(self.list_id, name=f"News {self.names}"))

    def enrol(self, count: int, _: bool) -> None:
        """Enrol contacts who are not in the flow."""
        live = {number for (number,) in rows("SELECT contact_id FROM run WHERE status = 'live'")}
        entering = [number for number in self.contacts if number not in live][:count]
        start_runs(self.home, Flow.get_by_id(self.flow_id), *entering)
        advance_until_idle()

    def pass_time(self, _: int, __: bool) -> None:
        """Advance the clock to the end of the wait step, and run what is due."""
        self.home.advance(61)
        advance_until_idle()

    def accept(self, row: LedgerRow) -> tuple[str, str]:
        """Accept a message as the server."""
        key = (name_source(row), row.recipient)
        self.accepted[key] = self.accepted.get(key, 0) + 1
        self.unsettled.add(key)
        return key

    def send(self, count: int, is_settled: bool) -> bool:
        """Send messages; return whether there were any."""
        ready = self.world.claim(count)
        for row in ready:
            self.accept(row)
        if ready:
            self.world.record(ready)
        if is_settled:
            self.settle()
        return bool(ready)

    def settle(self) -> None:
        """Settle the send log. What is in flight stays unsettled."""
        transactions.write(queue.settle_log)
        in_flight = {(name_source(row), row.recipient) for row in self.world.in_flight}
        self.unsettled &= in_flight

    def claim(self, count: int, is_accepted: bool) -> None:
        """Claim messages that the server accepts, or not; their outcomes never arrive."""
        for row in self.world.claim(count):
            if is_accepted:
                self.accept(row)

    def back_up(self, _: int, __: bool) -> None:
        """Create a backup."""
        self.copies.append(self.world.back_up())

    def kill(self, _: int, __: bool) -> None:
        """Kill the service and start it again."""
        self.world.kill()
        self.unsettled.clear()

    def restore(self, number: int, is_lost: bool) -> None:
        """Kill the service, lose its database or not, restore a backup, and resume everything."""
        if is_lost:
            self.excused |= self.unsettled
        self.unsettled.clear()
        self.world.restore(self.copies[-1 - number % len(self.copies)], is_lost)
        self.resume()

    def resume(self) -> None:
        """Resume sending and the flow, as a person does."""
        self.world.resume()
        advance_until_idle()

    def finish(self) -> None:
        """Send all that is left, with the second step of the flow."""
        self.kill(0, True)
        for _ in range(2):
            self.pass_time(0, True)
            while self.send(50, True):
                advance_until_idle()


def name_source(row: LedgerRow) -> str:
    """Return the name of the campaign of a message, or its run and step: ids may be given again in a lost database."""
    if row.campaign_id is not None:
        return str(scalar("SELECT name FROM campaign WHERE id = ?", (row.campaign_id,)))
    return f"run {row.run_id} step {row.step_id}"


def check(model: Model) -> None:
    """Check that no message was accepted twice, and that each row is sent once, or waits for a person."""
    twice = {key for key, number in model.accepted.items() if number > 1}
    assert twice <= model.excused and max(model.accepted.values(), default=0) <= 2
    stored = rows(
        "SELECT coalesce(c.name, 'run ' || m.run_id || ' step ' || m.step_id), m.recipient, m.status FROM message m "
        "LEFT JOIN campaign c ON c.id = m.campaign_id"
    )
    for source, recipient, status in stored:
        number = model.accepted.get((source, recipient), 0)
        assert (status, bool(number)) in (("sent", True), ("uncertain", True), ("uncertain", False)), (
            source, recipient, status, number,
        )  # fmt: skip
    check_counts()


def check_counts() -> None:
    """Check the counters of campaigns, flows and contacts, and the events, against the rows."""
    sent = "SELECT count(*) FROM message m WHERE m.status = 'sent'"
    assert not rows(f"SELECT id FROM campaign c WHERE sent_count != ({sent} AND m.campaign_id = c.id)")
    assert not rows(f"SELECT id FROM flow f WHERE hidden = 0 AND sent_count != ({sent} AND m.flow_id = f.id)")
    assert not rows(f"SELECT id FROM contact c WHERE email_sent_count != ({sent} AND m.contact_id = c.id)")
    assert scalar("SELECT count(*) FROM event WHERE event = 'email_sent'") == scalar(sent)


@settings(max_examples=examples(8, full=150))
@given(ACTIONS)
@example([("claim", 2, True), ("restore", 0, False), ("restore", 0, False)])
def test_nobody_is_mailed_twice_and_nobody_is_missed(actions: list[Action]) -> None:
    """The property holds for any interleaving."""
    with TemporaryDirectory(prefix="campanero-test-") as name:
        model = Model(Path(name))
        try:
            for action, number, flag in actions:
                act: Callable[[int, bool], Any] = getattr(model, action)
                act(number, flag)
            model.finish()
            check(model)
        finally:
            model.close()
