"""Whoever keeps being refused is paused for a person to look, and that is not forgotten before it is written."""

import pytest
from peewee import IntegrityError

from appliance.core.errors import ClientRejected, MailUnauthenticated, RecipientRejected, SenderRejected
from appliance.jobs.tasks import Jobs
from appliance.sending.delivery import bounce_classes
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.workers.circuit_breaker import MAX_REFUSALS
from appliance.storage import transactions
from appliance.storage.database import rows, run
from tests.domain.home import Home
from tests.domain.test_line import crowd


@pytest.mark.parametrize("who", ["campaign", "provider"])
def test_a_pause_that_cannot_be_written_is_written_later(who: str, home: Home) -> None:
    """While the pause cannot be written the campaign is held back; once it can be it is, and nothing is left over."""
    number = crowd(home, "ana@example.org")
    row, jobs = QueueReader().fetch_candidates(1)[0], Jobs("process")
    gate = jobs.email_sender.breaker
    for _ in range(MAX_REFUSALS):
        if who == "campaign":
            gate.record_answer(row, SenderRejected("550 not from you", 550))
        else:
            gate.record_connection_failure(row.provider, ClientRejected("535 wrong password", 535))
    transactions.write(
        run,
        "CREATE TRIGGER full BEFORE UPDATE ON campaign WHEN new.phase = 'paused' "
        "BEGIN SELECT raise(ABORT, 'no room'); END",
    )
    with pytest.raises(IntegrityError):
        jobs.advance_campaigns()
    assert rows("SELECT phase FROM campaign") == [("sending",)]
    assert gate.get_held_campaigns() == ((number,) if who == "campaign" else ())
    transactions.write(run, "DROP TRIGGER full")
    jobs.advance_campaigns()
    assert rows("SELECT phase, pause_reason FROM campaign") == [("paused", "transport")]
    assert (
        gate.get_held_campaigns() == ()
        and not gate.get_open_circuit().campaigns
        and not gate.get_open_circuit().providers
    )


def test_three_messages_nobody_knows_to_be_ours_are_enough(home: Home) -> None:
    """Whatever else is accepted: the third message refused for want of SPF pauses its campaign, with what to enter."""
    crowd(home, *(f"p{number}@example.org" for number in range(5)))
    claims, jobs = QueueReader().fetch_candidates(5), Jobs("process")
    gate = jobs.email_sender.breaker
    refused = MailUnauthenticated("550 5.7.27 SPF does not pass", 550, "5.7.27")
    for claim in (claims[0], claims[0], claims[0], claims[1]):
        gate.record_answer(claim, refused)
        gate.record_answer(claims[3], None)
    jobs.advance_campaigns()
    assert rows("SELECT phase FROM campaign") == [("sending",)], "two messages may be two servers wrong about us"
    gate.record_answer(claims[2], refused)
    jobs.advance_campaigns()
    assert rows("SELECT phase, pause_reason FROM campaign") == [("paused", "transport")]
    [(words,)] = rows("SELECT json_extract(data, '$.pause_detail') FROM campaign")
    assert "5.7.27" in words and "SPF record" in words and gate.get_held_campaigns() == ()


def test_twenty_in_a_row_who_do_not_want_us_are_enough(home: Home) -> None:
    """A block list at one provider pauses the campaign before all its people there are refused; others do not count."""
    crowd(home, *(f"p{number}@gmail.com" for number in range(45)), "other@example.org")
    claims, jobs = QueueReader().fetch_candidates(100), Jobs("process")
    there = [claim for claim in claims if claim.recipient.endswith("@gmail.com")]
    (other,) = [claim for claim in claims if claim not in there]
    gate = jobs.email_sender.breaker
    listed = RecipientRejected("554 5.7.1 blocked using zen.spamhaus.org", 554, "5.7.1")
    for claim in there[: MAX_REFUSALS - 1]:
        gate.record_answer(claim, listed)
        gate.record_answer(other, None)
    gate.record_answer(there[20], None)
    for claim in there[21 : 21 + MAX_REFUSALS - 1]:
        gate.record_answer(claim, listed)
        gate.record_answer(claim, RecipientRejected("550 5.1.1 no such user", 550, "5.1.1"))
    assert gate.get_held_campaigns() == ()
    gate.record_answer(there[-1], listed)
    jobs.advance_campaigns()
    assert rows("SELECT phase, pause_reason FROM campaign") == [("paused", "transport")]
    [(words,)] = rows("SELECT json_extract(data, '$.pause_detail') FROM campaign")
    assert "spamhaus" in words and bounce_classes.BLOCKLIST.help in words
