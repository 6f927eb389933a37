"""The ledger against a model: after every step the counts of a campaign match its rows (P2)."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.campaigns import send, states, store
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    DeliveryError,
    RecipientRejected,
    Uncertain,
)
from appliance.sending.messages.ledger import LedgerRow, Outcome
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import rows
from tests.domain.home import Home, record_and_claim, recover_after_crash

OPEN = {"queued", "held", "sending"}
ERRORS: dict[str, DeliveryError | None] = {
    "accepted": None,
    "temporary": Deferred("greylisted", 451, "4.7.1"),
    "permanent": RecipientRejected("no such user", 550, "5.1.1"),
    "uncertain": Uncertain("the connection broke after the dot"),
    "unreachable": ConnectionFailed("no route"),
    "client_rejected": ClientRejected("wrong password", 535),
    "skip": RecipientRejected("does not render"),
}
MANY = 4


class LedgerMachine(RuleBasedStateMachine):
    """A campaign under random actions. `claims` are the claimed rows, `final` the final statuses seen so far."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.home = Home(Path(self.directory.name))

    @initialize(
        hold=st.sampled_from([0, 60]),
        in_doubt=st.sampled_from(["resend", "hold"]),
        unsubscribed_count=st.integers(0, 2),
    )
    def start(self, hold: int, in_doubt: str, unsubscribed_count: int) -> None:
        """Send a campaign to a list, some of whose members have unsubscribed."""
        self.home.configure(email__in_doubt=in_doubt, email__retry_after=[60.0, 120.0], email__give_up="1h")
        people = [self.home.contact(f"p{number}@example.org") for number in range(MANY)]
        for person in people[:unsubscribed_count]:
            self.home.opt_out(person.channels[0].value)
        self.people = {person.id: person.channels[0].value for person in people}
        members = self.home.list_of(*self.people)
        self.campaign = self.home.send(self.home.campaign(members.id), hold_seconds=hold)
        self.claims: dict[int, LedgerRow] = {}
        self.final: dict[int, str] = {}
        self.sent_copies: Counter[int] = Counter()
        self.uncertain_counts: Counter[int] = Counter()
        self.lost_addresses: set[str] = set()
        assert self.campaign.audience_count == MANY

    def fetch_rows(self) -> dict[int, tuple[str, Any]]:
        """Return (status, due time) of each row of the campaign, by id."""
        result = rows("SELECT id, status, due_at FROM message WHERE campaign_id = ?", (self.campaign.id,))
        return {row[0]: (row[1], row[2]) for row in result}

    def load_campaign(self) -> Any:
        """Return the campaign as stored now."""
        return store.get(self.home.account_id, self.campaign.id)

    def take_turn(self, outcome: Outcome | None, want: bool) -> bool:
        """Record an outcome and, if `want`, claim the next message. Returns whether one was claimed."""
        phase = self.load_campaign().phase
        row = record_and_claim(outcome, want)
        if row is None:
            return False
        assert want and phase in ("sending", "holding"), "a message was claimed while the campaign was not sending"
        assert row.id not in self.claims, "a row was claimed twice"
        assert self.final.get(row.id) is None, "a row with a final status was claimed"
        assert row.recipient not in self.lost_addresses, "a recipient who left was claimed"
        assert self.fetch_rows()[row.id][0] == "sending"
        self.claims[row.id] = row
        return True

    @rule()
    def claim_next(self) -> None:
        """A worker claims the next message, if there is one."""
        self.take_turn(None, want=True)

    @precondition(lambda self: self.claims)
    @rule(kind=st.sampled_from([*ERRORS, "accepted", "uncertain"]), want=st.booleans(), which=st.integers(0, 9))
    def finish(self, kind: str, want: bool, which: int) -> None:
        """A worker records the outcome of one of its claims."""
        row = self.claims.pop(sorted(self.claims)[which % len(self.claims)])
        self.sent_copies[row.id] += kind in ("accepted", "uncertain")
        self.uncertain_counts[row.id] += kind == "uncertain"
        self.take_turn(Outcome(row, ERRORS[kind], "render_error" if kind == "skip" else None, "Hello"), want)

    @rule(seconds=st.sampled_from([1, 61, 200, 4000]))
    def wait(self, seconds: int) -> None:
        """Advance the clock and release the campaigns whose hold is over."""
        self.home.advance(seconds)
        transactions.write(send.release_held_campaigns)

    @rule(
        what=st.sampled_from(["pause", "resume", "resume", "resume", "cancel", "settle", "settle"]),
        really=st.booleans(),
    )
    def change_campaign(self, what: str, really: bool) -> None:
        """A user pauses, resumes or (rarely) cancels the campaign, or finished campaigns are completed."""
        status, act = self.load_campaign().status, (self.home.account_id, self.campaign.id, Actor("key:1"))
        if what == "pause" and status == "active":
            assert transactions.write(states.pause, *act).status == "paused"
            assert not self.take_turn(None, want=True)
        elif what == "resume" and status == "paused":
            assert transactions.write(send.resume, *act).status == "active"
        elif what == "cancel" and really and status in ("active", "paused"):
            transactions.write(states.cancel, *act)
            assert {number for number, (state, _) in self.fetch_rows().items() if state in OPEN} == set(self.claims)
        elif what == "settle":
            transactions.write(states.complete_finished)

    @rule(which=st.integers(0, MANY - 1), how=st.sampled_from(["link", "complaint", "manual", "delete", *"stay"]))
    def lose_recipient(self, which: int, how: str) -> None:
        """A recipient unsubscribes, is suppressed or is deleted, or (with `stay`) nothing happens."""
        contact_id, address = sorted(self.people.items())[which]
        if address in self.lost_addresses or how in "stay":
            return
        if how == "delete":
            transactions.write(removal.delete, self.home.account_id, contact_id)
        elif how == "link":
            self.home.opt_out(address)
        else:
            self.home.suppress(address, how)
        self.lost_addresses.add(address)

    @rule()
    def recover_after_crash(self) -> None:
        """The process dies with its claims open; the restart decides each of them."""
        assert recover_after_crash() == len(self.claims)
        for message_id in self.claims:
            self.sent_copies[message_id] += 1
            self.uncertain_counts[message_id] += 1
        self.claims.clear()

    @invariant()
    def counts_match_rows(self) -> None:
        """The identity of docs/decisions.md#7 is true, and each of its terms counts the rows of that status."""
        campaign, rows_by_id = self.load_campaign(), self.fetch_rows()
        counted = Counter(status for status, _ in rows_by_id.values())
        final_statuses = ("sent", "delivered", "bounced", "complained", "failed", "skipped", "cancelled", "uncertain")
        stats = campaign.stats
        assert stats["audience"] == MANY == campaign.audience_count == len(rows_by_id)
        assert stats["audience"] == stats["pending"] + sum(stats[name] for name in final_statuses)
        assert all(stats[name] == counted[name] for name in final_statuses)
        assert stats["accepted"] == sum(stats[name] for name in final_statuses[:4]) == campaign.sent_count
        assert stats["pending"] == sum(counted[name] for name in OPEN)

    @invariant()
    def claimed_rows_are_sending(self) -> None:
        """Exactly the claimed rows are `sending`, and every queued or held row has a due time."""
        rows_by_id = self.fetch_rows()
        assert {number for number, (status, _) in rows_by_id.items() if status == "sending"} == set(self.claims)
        assert all(due is not None for status, due in rows_by_id.values() if status in ("queued", "held"))

    @invariant()
    def final_statuses_stay(self) -> None:
        """A row that had a final status still has it."""
        for number, (status, _) in self.fetch_rows().items():
            if number in self.final:
                assert status == self.final[number]
            elif status not in OPEN:
                self.final[number] = status

    @invariant()
    def copies_are_bounded(self) -> None:
        """No recipient gets more than one copy, or two with `in_doubt = resend` (P3)."""
        max_copies = 2 if self.resends_in_doubt() else 1
        assert all(number <= max_copies for number in self.sent_copies.values())
        assert all(number <= max_copies for number in self.uncertain_counts.values())

    def resends_in_doubt(self) -> bool:
        """Return whether a message in doubt is sent once more."""
        return config.current().email.in_doubt == "resend"

    @invariant()
    def completed_campaigns_have_no_open_rows(self) -> None:
        """A completed campaign has no open row; a cancelled one only those that are claimed."""
        campaign = self.load_campaign()
        if campaign.phase == "completed":
            assert campaign.stats["pending"] == 0
        if campaign.phase == "cancelled":
            assert campaign.stats["pending"] == len(self.claims)
        assert (campaign.status == "completed") is (campaign.phase in ("completed", "cancelled"))

    def teardown(self) -> None:
        """Drain the campaign, then close the database and delete its directory."""
        try:
            if hasattr(self, "campaign"):
                self.drain()
        finally:
            self.home.close()
            self.directory.cleanup()

    def drain(self) -> None:
        """Have every open message accepted, and check that the campaign completes."""
        if self.load_campaign().status == "paused":
            transactions.write(send.resume, self.home.account_id, self.campaign.id, Actor("key:1"))
        for _ in range(6 * MANY):
            self.wait(4000)
            for row in list(self.claims.values()):
                del self.claims[row.id]
                self.take_turn(Outcome(row, subject="Hello"), want=False)
            if not self.take_turn(None, want=True):
                break
        transactions.write(states.complete_finished)
        campaign = self.load_campaign()
        assert campaign.status == "completed" and campaign.stats["pending"] == 0
        self.counts_match_rows()


def test_ledger_counts_match_rows_after_random_actions(full: bool) -> None:
    """Random outcomes, pauses, opt-outs, crashes and cancels break no invariant of the ledger."""
    # Without shrinking: an example of 40 steps is short enough to read, and shrinking it is slow
    run_settings = settings(
        settings(), max_examples=200 if full else 12, stateful_step_count=40, phases=[Phase.generate]
    )
    run_state_machine_as_test(LedgerMachine, settings=run_settings)
