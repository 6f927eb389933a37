"""The ledger against a model of it: whatever happens to a campaign's rows, the books balance after every step (P2)."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from appliance import config
from appliance.campaigns import send, states, store
from appliance.contacts import write
from appliance.db import work
from appliance.db.open import rows
from appliance.errors import DeliveryError, Ours, Permanent, Temporary, Uncertain, Unreachable
from appliance.messages import outbox
from appliance.messages.ledger import Claim, Outcome
from tests.domain.home import Home

OPEN = {"queued", "held", "sending"}
ERRORS: dict[str, DeliveryError | None] = {
    "accepted": None,
    "temporary": Temporary("greylisted", 451, "4.7.1"),
    "permanent": Permanent("no such user", 550, "5.1.1"),
    "uncertain": Uncertain("the connection broke after the dot"),
    "unreachable": Unreachable("no route"),
    "ours": Ours("wrong password", 535),
    "skip": Permanent("does not render"),
}
MANY = 12


class Books(RuleBasedStateMachine):
    """Random lives of one campaign; `hand` is what claims are out, `final` what was once seen in a final status."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.home = Home(Path(self.directory.name))

    @initialize(hold=st.sampled_from([0, 60]), in_doubt=st.sampled_from(["resend", "hold"]), out=st.integers(0, 3))
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
        """Answer every row of this campaign: its status and when it may move."""
        found = rows("SELECT id, status, due_at FROM message WHERE campaign_id = ?", (self.campaign.id,))
        return {row[0]: (row[1], row[2]) for row in found}

    def now(self) -> Any:
        """Answer the campaign as it is."""
        return store.get(self.home.account_id, self.campaign.id)

    @rule(kind=st.sampled_from([None, *ERRORS]), want=st.booleans(), which=st.integers(0, 99))
    def turn(self, kind: str | None, want: bool, which: int) -> None:
        """Finish one message in hand, or none, and perhaps take the next, as a sending thread does."""
        outcome = None
        if kind is not None and self.hand:
            claim = self.hand.pop(sorted(self.hand)[which % len(self.hand)])
            outcome = Outcome(claim, ERRORS[kind], "render_error" if kind == "skip" else None, "Hello")
            self.handed_over[claim.id] += kind in ("accepted", "uncertain")
            self.doubts[claim.id] += kind == "uncertain"
        phase = self.now().phase
        found = work.write(outbox.turn, outcome, "process", want)
        if found.claim is None:
            return
        claim = found.claim
        assert want and phase in ("sending", "holding"), "nothing starts outside of sending"
        assert claim.id not in self.hand, "no row is in two hands"
        assert self.final.get(claim.id) is None, "what has ended is never taken up again"
        assert claim.recipient not in self.gone, "nobody who left is written to"
        assert self.rows()[claim.id][0] == "sending"
        self.hand[claim.id] = claim

    @rule(seconds=st.sampled_from([1, 61, 200, 4000]))
    def wait(self, seconds: int) -> None:
        """Let time pass, and what follows from it."""
        self.home.advance(seconds)
        work.write(send.release_held)

    @precondition(lambda self: self.now().status == "active")
    @rule()
    def pause(self) -> None:
        """A person pauses; nothing is taken up until somebody resumes."""
        work.write(states.pause, self.home.account_id, self.campaign.id, "key:1")
        assert work.write(outbox.turn, None, "process", True).claim is None

    @precondition(lambda self: self.now().status == "paused")
    @rule()
    def resume(self) -> None:
        """A person lets it go on."""
        assert work.write(states.resume, self.home.account_id, self.campaign.id, "key:1").status == "active"

    @precondition(lambda self: self.now().status in ("active", "paused"))
    @rule(really=st.integers(0, 5))
    def cancel(self, really: int) -> None:
        """Now and then a person cancels: all but what is in hand ends at once."""
        if really:
            return
        work.write(states.cancel, self.home.account_id, self.campaign.id, "key:1")
        left = {number for number, (status, _) in self.rows().items() if status in OPEN}
        assert left == set(self.hand)

    @rule(which=st.integers(0, MANY - 1), how=st.sampled_from(["link", "complaint", "manual", "delete"]))
    def leave(self, which: int, how: str) -> None:
        """Somebody opts out, is suppressed, or is deleted, at any moment."""
        contact_id, address = sorted(self.people.items())[which]
        if address in self.gone:
            return
        if how == "delete":
            work.write(write.delete, self.home.account_id, contact_id)
        elif how == "link":
            self.home.leave(address)
        else:
            self.home.suppress(address, how)
        self.gone.add(address)

    @rule()
    def crash(self) -> None:
        """The process dies with messages in hand, and the next one decides about each."""
        assert work.write(outbox.recover) == len(self.hand)
        for claim_id in self.hand:
            self.handed_over[claim_id] += 1
            self.doubts[claim_id] += 1
        self.hand.clear()

    @rule()
    def settle(self) -> None:
        """Completion is looked for."""
        work.write(states.settle)

    @invariant()
    def the_books_balance(self) -> None:
        """The identity of decisions, section 7, holds, and every term counts the rows of its status."""
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
        """Say whether a doubtful message is tried once more."""
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
                self.finish()
        finally:
            self.home.close()
            self.directory.cleanup()

    def finish(self) -> None:
        """In the end everybody is told yes: what is still open drains, and the campaign completes."""
        if self.now().status == "paused":
            self.resume()
        for _ in range(40):
            for claim in list(self.hand.values()):
                del self.hand[claim.id]
                work.write(outbox.turn, Outcome(claim, subject="Hello"), "process", False)
            self.wait(4000)
            while (found := work.write(outbox.turn, None, "process", True).claim) is not None:
                self.hand[found.id] = found
            if not self.hand:
                break
        work.write(states.settle)
        campaign = self.now()
        assert campaign.status == "completed" and campaign.stats["pending"] == 0
        self.the_books_balance()


def test_the_books_balance_through_any_life() -> None:
    """Through random outcomes, pauses, opt-outs, crashes and cancels every invariant of the ledger holds."""
    tries = settings(settings(), max_examples=max(settings().max_examples // 2, 25), stateful_step_count=40)
    run_state_machine_as_test(Books, settings=tries)
