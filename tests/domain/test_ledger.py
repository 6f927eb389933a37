"""The ledger against a model of it: whatever happens to a campaign's rows, the books balance after every step (P2)."""

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
from appliance.sending.messages.ledger import Claim, Outcome
from appliance.settings import config
from appliance.storage import transactions
from appliance.storage.database import rows
from tests.domain.home import Home, crash, turn

OPEN = {"queued", "held", "sending"}
ERRORS: dict[str, DeliveryError | None] = {
    "accepted": None,
    "temporary": Deferred("greylisted", 451, "4.7.1"),
    "permanent": RecipientRejected("no such user", 550, "5.1.1"),
    "uncertain": Uncertain("the connection broke after the dot"),
    "unreachable": ConnectionFailed("no route"),
    "ours": ClientRejected("wrong password", 535),
    "skip": RecipientRejected("does not render"),
}
MANY = 4


class Books(RuleBasedStateMachine):
    """Random lives of one campaign; `hand` is what claims are out, `final` what was once seen in a final status."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.home = Home(Path(self.directory.name))
        rows("PRAGMA synchronous = 0")  # no power is cut here, and waiting for the disk would be most of the time

    @initialize(hold=st.sampled_from([0, 60]), in_doubt=st.sampled_from(["resend", "hold"]), out=st.integers(0, 2))
    def start(self, hold: int, in_doubt: str, out: int) -> None:
        """Send a campaign to a list, some of whose members may not be written to."""
        self.home.configure(email__in_doubt=in_doubt, email__retry_after=[60.0, 120.0], email__give_up="1h")
        people = [self.home.contact(f"p{number}@example.org") for number in range(MANY)]
        for person in people[:out]:
            self.home.leave(person.channels[0].value)
        self.people = {person.id: person.channels[0].value for person in people}
        members = self.home.list_of(*self.people)
        self.campaign = self.home.send(self.home.campaign(members.id), hold_seconds=hold)
        self.hand: dict[int, Claim] = {}
        self.final: dict[int, str] = {}
        self.handed_over: Counter[int] = Counter()
        self.doubts: Counter[int] = Counter()
        self.gone: set[str] = set()
        assert self.campaign.audience_count == MANY

    def rows(self) -> dict[int, tuple[str, Any]]:
        """Return every row of this campaign: its status and when it may move."""
        found = rows("SELECT id, status, due_at FROM message WHERE campaign_id = ?", (self.campaign.id,))
        return {row[0]: (row[1], row[2]) for row in found}

    def now(self) -> Any:
        """Return the campaign as it is."""
        return store.get(self.home.account_id, self.campaign.id)

    def turn(self, outcome: Outcome | None, want: bool) -> bool:
        """Store an outcome and perhaps take the next message, as a sending thread does; returns whether one came."""
        phase = self.now().phase
        claim = turn(outcome, want)
        if claim is None:
            return False
        assert want and phase in ("sending", "holding"), "nothing starts outside of sending"
        assert claim.id not in self.hand, "no row is in two hands"
        assert self.final.get(claim.id) is None, "what has ended is never taken up again"
        assert claim.recipient not in self.gone, "nobody who left is written to"
        assert self.rows()[claim.id][0] == "sending"
        self.hand[claim.id] = claim
        return True

    @rule()
    def take(self) -> None:
        """A thread takes the next message, if there is one."""
        self.turn(None, want=True)

    @precondition(lambda self: self.hand)
    @rule(kind=st.sampled_from([*ERRORS, "accepted", "uncertain"]), want=st.booleans(), which=st.integers(0, 9))
    def finish(self, kind: str, want: bool, which: int) -> None:
        """A thread finishes what it has in hand, one way or another."""
        claim = self.hand.pop(sorted(self.hand)[which % len(self.hand)])
        self.handed_over[claim.id] += kind in ("accepted", "uncertain")
        self.doubts[claim.id] += kind == "uncertain"
        self.turn(Outcome(claim, ERRORS[kind], "render_error" if kind == "skip" else None, "Hello"), want)

    @rule(seconds=st.sampled_from([1, 61, 200, 4000]))
    def wait(self, seconds: int) -> None:
        """Let time pass, and what follows from it."""
        self.home.advance(seconds)
        transactions.write(send.release_held_campaigns)

    @rule(
        what=st.sampled_from(["pause", "resume", "resume", "resume", "cancel", "settle", "settle"]),
        really=st.booleans(),
    )
    def somebody(self, what: str, really: bool) -> None:
        """A person pauses, resumes or (rarely) cancels, or completion is looked for."""
        status, act = self.now().status, (self.home.account_id, self.campaign.id, Actor("key:1"))
        if what == "pause" and status == "active":
            assert transactions.write(states.pause, *act).status == "paused"
            assert not self.turn(None, want=True)
        elif what == "resume" and status == "paused":
            assert transactions.write(send.resume, *act).status == "active"
        elif what == "cancel" and really and status in ("active", "paused"):
            transactions.write(states.cancel, *act)
            assert {number for number, (state, _) in self.rows().items() if state in OPEN} == set(self.hand)
        elif what == "settle":
            transactions.write(states.complete_finished)

    @rule(which=st.integers(0, MANY - 1), how=st.sampled_from(["link", "complaint", "manual", "delete", *"stay"]))
    def leave(self, which: int, how: str) -> None:
        """Somebody opts out, is suppressed, or is deleted, at any moment."""
        contact_id, address = sorted(self.people.items())[which]
        if address in self.gone or how in "stay":
            return
        if how == "delete":
            transactions.write(removal.delete, self.home.account_id, contact_id)
        elif how == "link":
            self.home.leave(address)
        else:
            self.home.suppress(address, how)
        self.gone.add(address)

    @rule()
    def crash(self) -> None:
        """The process dies with messages in hand, and the next one decides about each."""
        assert crash() == len(self.hand)
        for claim_id in self.hand:
            self.handed_over[claim_id] += 1
            self.doubts[claim_id] += 1
        self.hand.clear()

    @invariant()
    def the_books_balance(self) -> None:
        """The identity of docs/decisions.md#7, holds, and every term counts the rows of its status."""
        campaign, found = self.now(), self.rows()
        counted = Counter(status for status, _ in found.values())
        terms = ("sent", "delivered", "bounced", "complained", "failed", "skipped", "cancelled", "uncertain")
        stats = campaign.stats
        assert stats["audience"] == MANY == campaign.audience_count == len(found)
        assert stats["audience"] == stats["pending"] + sum(stats[name] for name in terms)
        assert all(stats[name] == counted[name] for name in terms)
        assert stats["accepted"] == sum(stats[name] for name in terms[:4]) == campaign.sent_count
        assert stats["pending"] == sum(counted[name] for name in OPEN)

    @invariant()
    def rows_in_hand_are_marked(self) -> None:
        """Exactly the rows in somebody's hand are marked so, and only open ones that wait have a time to move at."""
        found = self.rows()
        assert {number for number, (status, _) in found.items() if status == "sending"} == set(self.hand)
        assert all(due is not None for status, due in found.values() if status in ("queued", "held"))

    @invariant()
    def an_end_is_an_end(self) -> None:
        """A row that once had a final status has it still."""
        for number, (status, _) in self.rows().items():
            if number in self.final:
                assert status == self.final[number]
            elif status not in OPEN:
                self.final[number] = status

    @invariant()
    def copies_are_bounded(self) -> None:
        """Nobody is handed over more often than once and once more for one doubt (P3)."""
        most = 2 if self.home_resends() else 1
        assert all(number <= most for number in self.handed_over.values())
        assert all(number <= most for number in self.doubts.values())

    def home_resends(self) -> bool:
        """Return whether a doubtful message is tried once more."""
        return config.current().email.in_doubt == "resend"

    @invariant()
    def completed_means_done(self) -> None:
        """A campaign is completed only when no row of it is open; a cancelled one only waits for what is in hand."""
        campaign = self.now()
        if campaign.phase == "completed":
            assert campaign.stats["pending"] == 0
        if campaign.phase == "cancelled":
            assert campaign.stats["pending"] == len(self.hand)
        assert (campaign.status == "completed") is (campaign.phase in ("completed", "cancelled"))

    def teardown(self) -> None:
        """Give the process back, after the end of this life was looked at."""
        try:
            if hasattr(self, "campaign"):
                self.drain()
        finally:
            self.home.close()
            self.directory.cleanup()

    def drain(self) -> None:
        """In the end everybody is told yes: what is still open drains, and the campaign completes."""
        if self.now().status == "paused":
            transactions.write(send.resume, self.home.account_id, self.campaign.id, Actor("key:1"))
        for _ in range(6 * MANY):
            self.wait(4000)
            for claim in list(self.hand.values()):
                del self.hand[claim.id]
                self.turn(Outcome(claim, subject="Hello"), want=False)
            if not self.turn(None, want=True):
                break
        transactions.write(states.complete_finished)
        campaign = self.now()
        assert campaign.status == "completed" and campaign.stats["pending"] == 0
        self.the_books_balance()


def test_the_books_balance_through_any_life() -> None:
    """Through random outcomes, pauses, opt-outs, crashes and cancels every invariant of the ledger holds."""
    # Without shrinking: a life is short enough to read, and a shorter one is slow to find
    tries = settings(settings(), max_examples=settings().max_examples, stateful_step_count=40, phases=[Phase.generate])
    run_state_machine_as_test(Books, settings=tries)
