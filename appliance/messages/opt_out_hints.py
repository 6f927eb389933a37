"""When a marketing SMS says how to opt out: each time, or the first time and then once in thirty days."""

from appliance import clock, config
from appliance.db.open import scalar
from appliance.messages.ledger import Claim

_EVERY_MS = 30 * 86_400_000


def is_due(claim: Claim, sent_at: int | None = None) -> bool:
    """Return whether a message has to tell its recipient; of one that left, at `sent_at`, whether it had to then."""
    if config.current().sms.opt_out_hint == "always":
        return True
    last = scalar(
        "SELECT hinted_at FROM channel WHERE account_id = ? AND kind = 'phone' AND key = ?",
        (claim.account_id, claim.recipient_key),
    )
    if last is None or (sent_at is not None and last == sent_at):
        return True
    # As of its first attempt: made again, it says the same
    return is_over(last, claim.dated_at or clock.now_ms())


def is_over(hinted_at: int | None, now: int) -> bool:
    """Return whether it is long enough since a number was told to be told again, now that it is so late (ms)."""
    return config.current().sms.opt_out_hint == "always" or hinted_at is None or int(hinted_at) <= now - _EVERY_MS
