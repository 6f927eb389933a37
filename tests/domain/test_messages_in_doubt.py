"""A message in doubt is sent again with the same bytes, or a user decides (docs/decisions.md#8, P3)."""

import pytest

from appliance.accounts.audit import Actor
from appliance.audience.contacts import removal
from appliance.campaigns import states
from appliance.core import clock
from appliance.core.errors import Deferred, DeliveryError, RecipientRejected, Uncertain
from appliance.flows import run_ends
from appliance.jobs import housekeeping
from appliance.sending.messages import queue, retries
from appliance.sending.messages.ledger import LedgerRow, Outcome, OutgoingMessage
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.workers.renderer import Renderer
from appliance.storage import transactions
from appliance.storage.database import run, scalar
from appliance.storage.models import Message
from tests.domain.home import BY_API, Home, record_and_claim, recover_after_crash
from tests.domain.test_flow_run import create_live_flow, start_runs
from tests.domain.test_renderer import render_all


def _claim_message(home: Home, name: str = "Ann") -> tuple[LedgerRow, OutgoingMessage]:
    """Send a campaign to a new contact, and return its ledger row and prepared message."""
    contact = home.contact(f"{name.lower()}@example.org", first_name=name)
    home.send(home.campaign(home.list_of(contact.id, name=name).id, name, subject="For {{ first_name }}"))
    row = record_and_claim(None, True)
    assert row is not None
    return row, MessagePreparer().prepare(row)


@pytest.mark.parametrize("failure", ["connection", "crash"])
def test_a_message_sent_again_has_the_same_bytes(failure: str, home: Home) -> None:
    """A change of the contact between the attempts does not change the second one."""
    ledger_row, prepared = _claim_message(home)
    if failure == "crash":
        assert recover_after_crash() == 1
    else:
        record_and_claim(Outcome(ledger_row, Uncertain("the connection broke"), prepared=prepared), False)
    home.patch(ledger_row.contact_id, first_name="Bea")
    row = Message.get_by_id(ledger_row.id)
    assert (row.status, row.uncertain_count) == ("queued", 1)
    payload = retries.load_payload(ledger_row.id)
    assert payload is not None and payload == prepared
    assert b"Subject: For Ann\r\n" in payload.envelope.content


def test_a_changed_message_is_not_sent_again(home: Home) -> None:
    """If the contact changed before the crash was handled, the message stays uncertain for a user to decide."""
    ledger_row, _ = _claim_message(home)
    home.patch(ledger_row.contact_id, first_name="Bea")
    assert recover_after_crash() == 1
    row = Message.get_by_id(ledger_row.id)
    assert (row.status, row.uncertain_count, row.attempts) == ("uncertain", 1, 1)
    assert "changed since" in row.error_text


@pytest.mark.parametrize("error", [RecipientRejected("550 no such user", 550, "5.1.1"), Deferred("451 later", 451)])
def test_a_rejection_of_the_second_copy_leaves_the_first_in_doubt(error: DeliveryError, home: Home) -> None:
    """The first copy may have arrived, so the message does not count as failed (P3); the bounce is recorded."""
    row, prepared = _claim_message(home)
    _lose_reply(row, prepared, row.provider)
    next_row = record_and_claim(None, True)
    assert next_row is not None
    home.advance(80 * 3600)
    record_and_claim(Outcome(next_row, error, prepared=prepared), False)
    message = Message.get_by_id(row.id)
    assert (message.status, message.attempts, message.error_text) == ("uncertain", 2, error.text)
    assert scalar("SELECT count(*) FROM bounce") == 1 and retries.load_payload(row.id) == prepared


def _lose_reply(row: LedgerRow, prepared: OutgoingMessage, provider: str) -> str:
    """Record that the reply of a provider to an attempt was lost, and return the status of the message then."""
    outcome = Outcome(row._replace(provider=provider), Uncertain("the reply was lost"), prepared=prepared)
    record_and_claim(outcome, False)
    return str(Message.get_by_id(row.id).status)


def test_an_email_is_repeated_only_while_its_api_remembers_it(home: Home) -> None:
    """Brevo remembers a request for 15 minutes, so no repetition is planned for a later time."""
    row, prepared = _claim_message(home)
    statuses = [_lose_reply(row, prepared, "brevo")]
    for seconds in (0, 13 * 60):
        home.advance(seconds)
        next_row = record_and_claim(None, True)
        assert next_row is not None
        statuses.append(_lose_reply(next_row, prepared, "brevo"))
    assert statuses == ["queued", "queued", "uncertain"]


def test_an_email_held_in_doubt_is_not_repeated_over_an_api(home: Home) -> None:
    """With `in_doubt = hold` a user decides, also if the API would recognize the repetition."""
    home.configure(email__in_doubt="hold")
    assert _lose_reply(*_claim_message(home), "resend") == "uncertain"


@pytest.mark.parametrize("failure", ["connection", "crash"])
def test_a_user_retries_the_same_bytes(failure: str, home: Home) -> None:
    """A message held in doubt is sent again with its original bytes, also at the second retry."""
    home.configure(email__in_doubt="hold")
    row, prepared = _claim_message(home)
    for name in ("Bea", "Cleo"):
        if failure == "crash":
            assert recover_after_crash() == 1
        else:
            record_and_claim(Outcome(row, Uncertain("the connection broke"), prepared=prepared), False)
        assert Message.get_by_id(row.id).status == "uncertain"
        home.patch(row.contact_id, first_name=name)
        transactions.write(retries.retry, home.account_id, row.id, "user:1")
        next_row = record_and_claim(None, True)
        assert next_row is not None and retries.load_payload(next_row.id) == prepared
        row = next_row
    record_and_claim(Outcome(row, subject="x", sender="a@b.example"), False)
    assert Message.get_by_id(row.id).status == "sent" and scalar("SELECT count(*) FROM retry_payload") == 0


def test_assuming_a_message_sent_deletes_its_payload(home: Home) -> None:
    """The stored bytes are deleted when a user marks the message as sent."""
    home.configure(email__in_doubt="hold")
    row, prepared = _claim_message(home)
    record_and_claim(Outcome(row, Uncertain("the connection broke"), prepared=prepared), False)
    assert scalar("SELECT count(*) FROM retry_payload") == 1
    transactions.write(retries.assume_sent, home.account_id, row.id, "user:1")
    assert scalar("SELECT count(*) FROM retry_payload") == 0


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_crash_after_a_failed_rendering_causes_no_doubt(is_cancelled: bool, home: Home) -> None:
    """A claimed message that could not be rendered was not sent: after a crash it is queued or cancelled."""
    ledger_row, _ = _claim_message(home)
    record_and_claim(Outcome(ledger_row, Deferred("greylisted", 451, "4.7.1")), False)
    home.advance(1000)
    pinned = scalar("SELECT pinned FROM campaign WHERE id = ?", (ledger_row.campaign_id,))
    transactions.write(run, "UPDATE campaign SET pinned = '{}' WHERE id = ?", (ledger_row.campaign_id,))
    renderer = Renderer()
    [ready] = render_all(renderer, QueueReader().fetch_candidates(1))
    renderer.close()
    assert ready.failure is not None and transactions.write(queue.claim, [ready.row], "process") == {ledger_row.id}
    transactions.write(run, "UPDATE campaign SET pinned = ? WHERE id = ?", (pinned, ledger_row.campaign_id))
    if is_cancelled:
        transactions.write(states.cancel, home.account_id, ledger_row.campaign_id, Actor("key:1"))
    assert recover_after_crash() == 1
    row = Message.get_by_id(ledger_row.id)
    assert (row.status, row.uncertain_count, row.attempts) == ("cancelled" if is_cancelled else "queued", 0, 1)


def test_an_interrupted_message_that_fails_to_render_is_held(home: Home) -> None:
    """The service starts all the same: that message is uncertain, the other one is queued again."""
    ledger_row, _ = _claim_message(home)
    transactions.write(run, "UPDATE campaign SET pinned = '{}' WHERE id = ?", (ledger_row.campaign_id,))
    other = home.contact("bob@example.org")
    home.send(home.campaign(home.list_of(other.id, name="Other").id, name="Other"))
    second_row = record_and_claim(None, True)
    assert second_row is not None and recover_after_crash() == 2
    assert [Message.get_by_id(row.id).status for row in (ledger_row, second_row)] == ["uncertain", "queued"]


@pytest.mark.parametrize("ending", ["accepted", "second doubt", "erased"])
def test_payloads_are_deleted_when_not_needed(ending: str, home: Home) -> None:
    """Acceptance and erasure delete the stored bytes; a message in doubt keeps them for the user who decides."""
    row, prepared = _claim_message(home)
    record_and_claim(Outcome(row, Uncertain("the connection broke"), prepared=prepared), False)
    if ending == "erased":
        transactions.write(removal.erase, home.account_id, row.contact_id, BY_API)
    else:
        next_row = record_and_claim(None, True)
        assert next_row is not None and next_row.uncertain_count == 1
        error = None if ending == "accepted" else Uncertain("again")
        record_and_claim(Outcome(next_row, error, subject="x", sender="a@b.example", prepared=prepared), False)
    assert scalar("SELECT count(*) FROM retry_payload") == (1 if ending == "second doubt" else 0)
    assert Message.get_by_id(row.id).status == ("sent" if ending == "accepted" else "uncertain")


@pytest.mark.parametrize("way", ["message", "campaign", "run"])
def test_a_cancelled_message_that_may_have_arrived_is_in_doubt(way: str, home: Home) -> None:
    """Whoever cancels it before its second attempt, it is uncertain, and its error says so and why it is not sent."""
    row, prepared = _claim_message(home)
    record_and_claim(Outcome(row, Uncertain("the connection broke"), prepared=prepared), False)
    assert (Message.get_by_id(row.id).status, Message.get_by_id(row.id).error_code) == ("queued", "uncertain")
    if way == "message":
        transactions.write(retries.cancel, home.account_id, row.id, "user:1")
    elif way == "campaign":
        assert row.campaign_id is not None
        transactions.write(states.cancel, home.account_id, row.campaign_id, Actor("user:1"))
    else:
        flow = create_live_flow(home, [{"id": 1, "type": "wait", "duration": 60}])
        [run_id] = start_runs(home, flow, row.contact_id)
        transactions.write(run, "UPDATE message SET run_id = ?, campaign_id = NULL WHERE id = ?", (run_id, row.id))
        transactions.write(run_ends.cancel_messages, [run_id], clock.now_ms())
    cancelled = Message.get_by_id(row.id)
    assert (cancelled.status, cancelled.error_code, cancelled.due_at) == ("uncertain", "in_doubt", None)
    assert cancelled.error_text == "not repeated: cancelled"


def test_payloads_of_a_cancelled_campaign_are_pruned(home: Home) -> None:
    """Housekeeping deletes the stored bytes of a cancelled campaign and keeps those of a live one."""
    home.configure(email__in_doubt="hold")
    cancelled, live = _claim_message(home), _claim_message(home, "Bea")
    for row, prepared in (cancelled, live):
        record_and_claim(Outcome(row, Uncertain("the connection broke"), prepared=prepared), False)
    housekeeping.prune_erased_and_finished()
    assert retries.load_payload(cancelled[0].id) and retries.load_payload(live[0].id)
    assert cancelled[0].campaign_id is not None
    transactions.write(states.cancel, home.account_id, cancelled[0].campaign_id, Actor("user:1"))
    housekeeping.prune_erased_and_finished()
    assert retries.load_payload(cancelled[0].id) is None and retries.load_payload(live[0].id) == live[1]
    assert Message.get_by_id(cancelled[0].id).status == "uncertain"


def test_an_erased_contact_leaves_no_payload(home: Home) -> None:
    """An erasure while the message is being sent: the doubt that follows stores no bytes."""
    row, prepared = _claim_message(home)
    transactions.write(removal.erase, home.account_id, row.contact_id, BY_API)
    record_and_claim(Outcome(row, Uncertain("the connection broke"), prepared=prepared), False)
    assert scalar("SELECT count(*) FROM retry_payload") == 0
