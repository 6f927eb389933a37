"""SMS that may have been taken, and what their provider says when it is asked for them (P13).

It is asked three times, for it may be slow to know. What it does not have is then held for a person, or sent once more.
Nothing is handed over here, so a row that is looked for is in nobody's hand: a process that dies leaves it as it is.
"""

import random
from collections.abc import Sequence

from appliance.core import clock
from appliance.core.errors import DeliveryError, Later, Unlisted, Unreachable
from appliance.sending.messages import hot, ledger, outcomes
from appliance.sending.messages.ledger import Claim, Outcome, Prepared
from appliance.sending.sms.gsm import Accepted
from appliance.settings.config import seconds
from appliance.storage.open import connection, fetch_one
from appliance.storage.work import writing

# After the first time (`outcomes.doubt`)
_AGAIN_SECONDS = (30.0, 120.0)
_OTHERS = "SELECT 1 FROM message WHERE provider_id = ? AND provider = ? AND id <> ?"
_ABSENT = "nobody knows whether it was taken: its provider was asked three times and does not have it"


def settle(row: Claim, prepared: Prepared, found: Sequence[Accepted]) -> None:
    """Decide about a message that is looked for, by those of its words that the provider took since it was sent."""
    writing()
    looked = _looked(row)
    if looked is None:
        return None
    own = next((each for each in found if fetch_one(_OTHERS, (each.provider_id, row.provider, row.id)) is None), None)
    if own is not None:
        return _accept(row, prepared, own)
    now = clock.now_ms()
    if looked < len(_AGAIN_SECONDS):
        connection().execute("UPDATE repeat SET looked = ? WHERE message_id = ?", (looked + 1, row.id))
        return _wait(row, now + int(_AGAIN_SECONDS[looked] * 1000))
    return _end(row, _ABSENT, now)


def _end(row: Claim, why: str, now: int) -> None:
    """Look no further for a message: it is sent once more, or held for a person."""
    connection().execute("UPDATE repeat SET looked = NULL WHERE message_id = ?", (row.id,))
    if outcomes.way_of(row).in_doubt == "resend" and row.doubts == 1:
        return _wait(row, ledger.AGAIN_AT_ONCE)
    return ledger.uncertain(row, why, now)


def put_off(row: Claim, error: DeliveryError) -> None:
    """Ask for a message again later, as the provider did not answer; at the end of all attempts a person decides.

    So they do at once where there is nothing that it could be asked for.
    """
    writing()
    if _looked(row) is None:
        return None
    now, here = clock.now_ms(), outcomes.way_of(row)
    if isinstance(error, Unlisted):
        return _end(row, f"nobody knows whether it was taken, and its provider cannot be asked: {error.text}", now)
    if outcomes.is_given_up(row, now):
        connection().execute("UPDATE repeat SET looked = NULL WHERE message_id = ?", (row.id,))
        return ledger.uncertain(row, f"nobody knows whether it was taken, nor does its provider say: {error.text}", now)
    if isinstance(error, Later):
        return _wait(row, now + int(error.seconds * 1000))
    if isinstance(error, Unreachable):
        return _wait(row, now + int(seconds(here.probe_after) * 1000))
    return _wait(row, now + int(_next(here.retry_after or [300.0], (now - (row.dated_at or now)) / 1000) * 1000))


def _looked(row: Claim) -> int | None:
    """Return how often a message was looked for; None if it is not any more: settled, cancelled, sent by a person."""
    found = fetch_one(
        "SELECT r.looked FROM repeat r JOIN message m ON m.id = r.message_id "
        "WHERE m.id = ? AND m.status IN ('queued', 'held')",
        (row.id,),
    )
    return found[0] if found is not None else None


def _accept(row: Claim, prepared: Prepared, own: Accepted) -> None:
    # The attempt that ended in doubt is counted already
    connection().execute(
        "UPDATE message SET status = 'sending', attempts = max(attempts - 1, 0) WHERE id = ?", (row.id,)
    )
    outcome = Outcome(row, sender=prepared.sender, prepared=prepared, provider_id=own.provider_id)
    outcome.first_status = own.status
    hot.step([outcome], [], "")


def _wait(row: Claim, due_at: int) -> None:
    connection().execute("UPDATE message SET due_at = ?, updated_at = ? WHERE id = ?", (due_at, clock.now_ms(), row.id))


def _next(ladder: Sequence[float], elapsed: float) -> float:
    """Return the step of the ladder that somebody is on who began so many seconds ago."""
    for step in ladder[:-1]:
        elapsed -= step
        if elapsed < 0:
            return step * random.uniform(0.8, 1.2)
    return ladder[-1] * random.uniform(0.8, 1.2)
