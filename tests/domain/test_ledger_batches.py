"""Ledger batches: a batch of outcomes and claims gives the same rows as one at a time."""

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
from appliance.sending.messages.ledger import COLUMNS, LedgerRow, Outcome
from appliance.storage import transactions
from appliance.storage.database import connection, rows, run, scalar
from tests.domain import flow_rows
from tests.domain.home import BY_LINK, Home
from tests.kit.sampling import examples

ERRORS: dict[str, DeliveryError | None] = {
    "accepted": None,
    "temporary": Deferred("greylisted", 451, "4.7.1"),
    "permanent": RecipientRejected("no such user", 550, "5.1.1"),
    "refused": SenderRejected("not under this name", 550, "5.7.1"),
    "uncertain": Uncertain("the connection broke after the dot"),
    "unreachable": ConnectionFailed("no route"),
    "client_rejected": ClientRejected("wrong password", 535),
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
CONTACT_COUNT = 6


class MessageCase(NamedTuple):
    """One message: its outcome (None: it is to be claimed), its kind, what happens to its contact."""

    kind: str | None
    shape: str
    happened: str
    twice: bool


MESSAGE_CASES = st.builds(
    MessageCase,
    st.sampled_from([None, *ERRORS, "accepted", "accepted"]),
    st.sampled_from([*SHAPES, "campaign", "campaign"]),
    st.sampled_from(["left", "left the list", "complaint", "deleted", *["stayed"] * 4]),
    st.booleans(),
)


class RollBack(Exception):
    """Rolls back the transaction of an example."""


@pytest.fixture(scope="module")
def active_campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, int]]:
    """Yield an installation with a campaign being sent, and the campaign's id."""
    home = Home(Path(tmp_path_factory.mktemp("hot")))
    contact_ids = [home.contact(f"p{number}@example.org").id for number in range(CONTACT_COUNT)]
    campaign = home.send(home.campaign(home.list_of(*contact_ids).id))
    flow = flow_rows.insert_flow(home)
    for number, contact_id in enumerate(contact_ids):
        flow_rows.insert_run(home, flow, contact_id, chain_depth=number % 3)
    yield home, campaign.id
    home.close()


def table_rows() -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows that sending may change; events, consents and suppressions are sorted without their ids."""
    rows_by_table = {name: [tuple(row) for row in rows(f"SELECT * FROM {name} ORDER BY id")] for name in TABLES}
    for name in ("event", "consent", "suppression"):
        rows_by_table[name] = sorted((row[1:] for row in rows_by_table[name]), key=repr)
    return rows_by_table


def change_contact(home: Home, row: LedgerRow, change: str) -> None:
    """Change the contact of a message while it is being sent."""
    if change == "left":
        consent.opt_out(home.channel(row.recipient), "recipient", BY_LINK)
    elif change == "left the list":
        consent.leave_list(home.channel(row.recipient), scalar("SELECT max(id) FROM contact_list"), BY_LINK)
    elif change == "complaint":
        run("UPDATE channel SET suppression = 'complaint' WHERE key = ?", (row.recipient_key,))
    elif change == "deleted" and row.contact_id is not None:
        removal.delete(home.account_id, row.contact_id)


def prepare_messages(home: Home, cases: list[MessageCase]) -> tuple[list[Outcome], list[LedgerRow]]:
    """Set up the messages as the cases say; return the outcomes and the rows to claim."""
    outcomes: list[Outcome] = []
    ledger_rows: list[LedgerRow] = []
    for number, case in zip([row[0] for row in rows("SELECT id FROM message ORDER BY id")], cases, strict=True):
        run(f"UPDATE message SET {SHAPES[case.shape]} WHERE id = ?", (number,))
        if case.kind is not None:
            run("UPDATE message SET status = 'sending', claimed_by = 'p' WHERE id = ?", (number,))
        ledger_row = LedgerRow._make(rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (number,))[0])
        change_contact(home, ledger_row, case.happened)
        if case.kind is None:
            ledger_rows.append(ledger_row._replace(first_attempt_at=ledger_row.first_attempt_at or clock.now_ms()))
        else:
            reason = "render_error" if case.kind == "skip" else None
            outcome = Outcome(
                ledger_row, ERRORS[case.kind], reason, f"Hello {number}", "a@example.org", f"{number}@example.org"
            )
            outcomes += [outcome, outcome] if case.twice else [outcome]
    return outcomes, ledger_rows


def apply_one_by_one(outcomes: list[Outcome], ledger_rows: list[LedgerRow]) -> set[int]:
    """Record each outcome and claim each row separately."""
    for outcome in outcomes:
        queue.record([outcome])
    now = clock.now_ms()
    # The rows may be out of date, so each row is read again
    current_rows = [(row, rows(f"SELECT {COLUMNS} FROM message WHERE id = ?", (row.id,))[0]) for row in ledger_rows]
    return {row.id for row, values in current_rows if queue.claim_one(LedgerRow._make(values), "p", row, now)}


def apply_in_one_batch(outcomes: list[Outcome], ledger_rows: list[LedgerRow]) -> set[int]:
    """Record all outcomes and claim all rows at once."""
    queue.record(outcomes)
    return queue.claim(ledger_rows, "p")


def apply_by_log(outcomes: list[Outcome], ledger_rows: list[LedgerRow]) -> set[int]:
    """Log what can be logged and settle the log, as the senders do."""
    claimed = queue.record_and_claim(outcomes, ledger_rows, "p")
    queue.settle_log()
    assert queue.is_log_empty()
    return claimed


@settings(max_examples=examples(50, full=150), deadline=None)
@given(
    cases=st.lists(MESSAGE_CASES, min_size=CONTACT_COUNT, max_size=CONTACT_COUNT),
    source=st.sampled_from(["paused", "stopped", "cancelled", "capped", *["live"] * 5]),
    seed=st.integers(0, 9),
)
def test_a_batch_gives_the_same_rows_as_one_by_one(
    active_campaign: tuple[Home, int], cases: list[MessageCase], source: str, seed: int
) -> None:
    """Any outcomes and claims give the same rows, events and claims in one batch, or by the log, as one by one."""
    home, campaign_id = active_campaign
    results: list[Any] = []
    now = time.time()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RollBack), transactions.transaction():
        patch.setattr(time, "time", lambda: now)
        outcomes, ledger_rows = prepare_messages(home, cases)
        if source == "stopped":
            run("UPDATE account SET sending_stopped = 1 WHERE id = ?", (home.account_id,))
        elif source == "capped":
            run("""UPDATE account SET frequency_cap = '{"messages": 1, "days": 1}' WHERE id = ?""", (home.account_id,))
        elif source != "live":
            (states.pause if source == "paused" else states.cancel)(home.account_id, campaign_id, Actor("key:1"))
        for apply in (apply_one_by_one, apply_in_one_batch, apply_by_log):
            random.seed(seed)
            connection().execute("SAVEPOINT way")
            results.append((apply(outcomes, ledger_rows), table_rows()))
            connection().execute("ROLLBACK TO way")
        raise RollBack
    separate, *others = results
    for claimed, tables in others:
        assert claimed == separate[0]
        for name in TABLES:
            assert tables[name] == separate[1][name], name
