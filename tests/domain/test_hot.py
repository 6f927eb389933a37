"""The ledger in batches: whatever comes in one batch, the rows are those of one at a time."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.accounts.audit import Actor
from appliance.audience import consent
from appliance.audience.contacts import removal
from appliance.campaigns import states
from appliance.core import clock
from appliance.core.errors import (
    ClientRejected,
    ConnectionFailed,
    Deferred,
    DeliveryError,
    RecipientRejected,
    SenderRejected,
    Uncertain,
)
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import COLUMNS, Claim, Outcome
from appliance.storage import transactions
from appliance.storage.database import connection, rows, run
from tests.domain import flow_rows
from tests.domain.home import BY_LINK, Home

ERRORS: dict[str, DeliveryError | None] = {
    "accepted": None,
    "temporary": Deferred("greylisted", 451, "4.7.1"),
    "permanent": RecipientRejected("no such user", 550, "5.1.1"),
    "refused": SenderRejected("not under this name", 550, "5.7.1"),
    "uncertain": Uncertain("the connection broke after the dot"),
    "unreachable": ConnectionFailed("no route"),
    "ours": ClientRejected("wrong password", 535),
    "skip": RecipientRejected("does not render"),
}
SHAPES = {
    "campaign": "id = id",
    "test": "test = 1",
    "single": "campaign_id = NULL",
    "transactional": "campaign_id = NULL, transactional = 1",
    "flow": "campaign_id = NULL, step_id = 1, flow_id = (SELECT max(flow_id) FROM run), "
    "run_id = (SELECT r.id FROM run r WHERE r.contact_id = message.contact_id)",
    "later": "due_at = due_at + 60000",
    "repeated": "uncertain_count = 1, attempts = 1, first_attempt_at = 1000",
}
TABLES = ("message", "contact", "channel", "campaign", "flow", "run", "event", "suppression", "consent")
PEOPLE = 6


class Life(NamedTuple):
    """One message: what became of it (None: it is to be marked), how it is sent, what happened to its person."""

    kind: str | None
    shape: str
    happened: str
    twice: bool


LIVES = st.builds(
    Life,
    st.sampled_from([None, *ERRORS, "accepted", "accepted"]),
    st.sampled_from([*SHAPES, "campaign", "campaign"]),
    st.sampled_from(["left", "complaint", "deleted", *["stayed"] * 4]),
    st.booleans(),
)


class Undone(Exception):
    """Takes a whole example back."""


@pytest.fixture(scope="module")
def sending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, int]]:
    """Return an installation with a campaign under way, and the campaign's id."""
    home = Home(Path(tmp_path_factory.mktemp("hot")))
    people = [home.contact(f"p{number}@example.org").id for number in range(PEOPLE)]
    campaign = home.send(home.campaign(home.list_of(*people).id))
    flow = flow_rows.flow(home)
    for number, person in enumerate(people):
        flow_rows.run(home, flow, person, chain_depth=number % 3)
    yield home, campaign.id
    home.close()


def stored() -> dict[str, list[tuple[Any, ...]]]:
    """Return every row that sending may change; events and consents in no order, for only batches change that."""
    found = {name: [tuple(row) for row in rows(f"SELECT * FROM {name} ORDER BY id")] for name in TABLES}
    for name in ("event", "consent", "suppression"):
        found[name] = sorted((row[1:] for row in found[name]), key=repr)
    return found


def happen(home: Home, claim: Claim, how: str) -> None:
    """Let something happen to the person of a message while it is under way."""
    if how == "left":
        consent.opt_out(home.channel(claim.recipient), "recipient", BY_LINK)
    elif how == "complaint":
        run("UPDATE channel SET suppression = 'complaint' WHERE key = ?", (claim.recipient_key,))
    elif how == "deleted" and claim.contact_id is not None:
        removal.delete(home.account_id, claim.contact_id)


def prepare(home: Home, lives: list[Life]) -> tuple[list[Outcome], list[Claim]]:
    """Bring the messages to where their lives say; returns what became of them and what is to be marked."""
    found: list[Outcome] = []
    marks: list[Claim] = []
    for number, life in zip([row[0] for row in rows("SELECT id FROM message ORDER BY id")], lives, strict=True):
        run(f"UPDATE message SET {SHAPES[life.shape]} WHERE id = ?", (number,))
        if life.kind is not None:
            run("UPDATE message SET status = 'sending', claimed_by = 'p' WHERE id = ?", (number,))
        claim = Claim._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (number,))[0])
        happen(home, claim, life.happened)
        if life.kind is None:
            marks.append(claim._replace(first_attempt_at=claim.first_attempt_at or clock.now_ms()))
        else:
            reason = "render_error" if life.kind == "skip" else None
            one = Outcome(claim, ERRORS[life.kind], reason, f"Hello {number}", "a@example.org", f"{number}@example.org")
            found += [one, one] if life.twice else [one]
    return found, marks


def one_by_one(found: list[Outcome], marks: list[Claim]) -> set[int]:
    """Hand in the same, each alone."""
    for one in found:
        queue.record_and_claim([one], [], "p")
    now = clock.now_ms()
    # What is handed in may be long out of date: the row is looked at as it is
    fresh = [(row, rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (row.id,))[0]) for row in marks]
    return {row.id for row, here in fresh if queue.claim_one(Claim._make(here), "p", row, now)}


def in_one_batch(found: list[Outcome], marks: list[Claim]) -> set[int]:
    """Do it as the sender does."""
    return queue.record_and_claim(found, marks, "p")


@settings(max_examples=150, deadline=None)
@given(
    lives=st.lists(LIVES, min_size=PEOPLE, max_size=PEOPLE),
    source=st.sampled_from(["paused", "stopped", "cancelled", "capped", *["live"] * 5]),
    seed=st.integers(0, 9),
)
def test_a_batch_comes_to_the_same_as_one_by_one(
    sending: tuple[Home, int], lives: list[Life], source: str, seed: int
) -> None:
    """Outcomes and marks of any kind, in one batch or one by one: the same rows, the same events, the same marks."""
    home, campaign_id = sending
    answers: list[Any] = []
    moment = time.time()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Undone), transactions.transaction():
        patch.setattr(time, "time", lambda: moment)
        found, marks = prepare(home, lives)
        if source == "stopped":
            run("UPDATE account SET sending_stopped = 1 WHERE id = ?", (home.account_id,))
        elif source == "capped":
            run("""UPDATE account SET frequency_cap = '{"messages": 1, "days": 1}' WHERE id = ?""", (home.account_id,))
        elif source != "live":
            (states.pause if source == "paused" else states.cancel)(home.account_id, campaign_id, Actor("key:1"))
        for way in (one_by_one, in_one_batch):
            random.seed(seed)
            connection().execute("SAVEPOINT way")
            answers.append((way(found, marks), stored()))
            connection().execute("ROLLBACK TO way")
        raise Undone
    careful, quick = answers
    assert quick[0] == careful[0]
    for name in TABLES:
        assert quick[1][name] == careful[1][name], name
