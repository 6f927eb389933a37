"""Writes what came back about a message, once and only as far as it can be true (docs/decisions.md#7 and #9).

Believed is what names a message of ours and its recipient: for two weeks after it left, and a complaint for a quarter,
because people clear their inboxes late. A status never goes back: sent, delivered, bounced, complained. Who says it
makes no difference: a report, a provider's hook, a rehearsal. Of a test only a rehearsal tells, or the provider of its
SMS, and what happened to it stands with the test alone.
"""

from typing import Literal, NamedTuple

from appliance.audience.contacts import suppress
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.suppress import Case
from appliance.core import addresses, clock
from appliance.core.addresses import Address
from appliance.core.errors import Unavailable
from appliance.sending.delivery import classes
from appliance.sending.delivery.classes import Class
from appliance.sending.messages import ledger, manual_decisions, message_counters, outcomes, warm_up
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.storage.open import fetch_one, run
from appliance.storage.work import writing

# What somebody tells us about a message after it left, whichever way they tell it.

Kind = Literal["delivered", "bounced", "soft_bounced", "complained"]


class Fact(NamedTuple):
    """One thing said about one message; believed only as far as `record.apply` can check it.

    `recipient` is the address as reported (None only where nobody need be named, see `record`), `key` is the reporter's
    own name for this report, under which it counts once, and `at` its moment in ms. Of an SMS, `code` is its provider's
    own, and `judged` what that means.
    """

    message_id: int
    kind: Kind
    source: str  # dsn, arf, smtp, hook, ses, postmark, mailgun, sendgrid, capture, and the providers of SMS
    text: str = ""
    smtp: int | None = None
    enhanced: str | None = None
    recipient: str | None = None
    key: str | None = None
    at: int | None = None
    code: str | None = None
    judged: Class | None = None


_DAY_MS = 24 * 3600 * 1000
_LATEST_MS, _LATEST_COMPLAINT_MS = 14 * _DAY_MS, 90 * _DAY_MS
# Keys are kept longer than anything is believed
_KEYS_MS = 100 * _DAY_MS
_RANK = {"uncertain": 0, "sent": 0, "delivered": 1, "bounced": 2, "complained": 3}
_TO = {"delivered": "delivered", "bounced": "bounced", "soft_bounced": "bounced", "complained": "complained"}
# What these tell is believed without the name of the recipient: a complaint that our own signatures prove
_PROVEN = ("arf",)
# These read the words of servers themselves; others have judged before they tell
_OWN = ("dsn", "smtp")


class InHand(Unavailable):
    """A message has left and is not written down yet: nothing of this fact is written, and it is to be told again."""

    def __init__(self) -> None:
        super().__init__("this message is still in hand; tell it again in a moment", "unavailable", 30)


class _Known(NamedTuple):
    """A message somebody tells about, and how it stood."""

    row: Claim
    status: str
    left_at: int


def apply(fact: Fact) -> bool:
    """Write a fact with all that follows from it; False if it changes nothing: known, late, or not to be believed.

    Raises InHand while the message is in hand: it has left and is not written down yet, so ask again.
    """
    writing()
    known = _find(fact)
    if (
        known is None
        or _RANK.get(known.status, 0) >= _RANK[_TO[fact.kind]]
        or not (fact.key is None or is_new(fact.source, fact.key))
    ):
        return False
    if known.status in ("uncertain", "queued", "held"):
        manual_decisions.arrived(known.row.id)
    match fact.kind:
        case "delivered":
            _delivered(known, fact)
        case "complained":
            _complained(known, fact)
        case _:
            _bounced(known, fact)
    return True


def _find(fact: Fact) -> _Known | None:
    """Return the message of a fact if what is said of it can be true."""
    found = fetch_one(
        f"SELECT {COLUMNS}, status, coalesce(sent_at, updated_at) FROM message WHERE id = ? "
        "AND recipient_key IS NOT NULL AND (test = 0 OR channel = 'sms' OR ? = 'capture')",
        (fact.message_id, fact.source),
    )
    if found is None:
        return None
    known = _Known(Claim._make(found[:-2]), *found[-2:])
    if not _is_recipient(known.row, fact):
        return None
    if known.status == "sending":
        raise InHand
    latest = _LATEST_COMPLAINT_MS if fact.kind == "complained" else _LATEST_MS
    late = clock.now_ms() - known.left_at > latest
    # It waits for its repeat, or to be asked for, perhaps for long
    is_in_doubt = known.status in ("queued", "held") and known.row.doubts > 0
    return None if late or not (known.status in _RANK or is_in_doubt) else known


def _is_recipient(row: Claim, fact: Fact) -> bool:
    """Return whether a fact is about the recipient of its message; an SMS is named by its provider instead."""
    if fact.recipient is None:
        return row.kind == "phone" or fact.source in _PROVEN
    return _names(row.kind, fact.recipient, row.recipient_key)


def _names(kind: str, reported: str, recipient_key: str | None) -> bool:
    """Return whether what was reported is the recipient: relays write addresses as headers and DNS do, too."""
    if kind == "email":
        reported = addresses.in_header(reported)
    try:
        return addresses.read(kind, reported).key == recipient_key
    except ValueError:
        return False


def is_recipient(message_id: int, reported: str | None) -> bool:
    """Return whether an email address that was reported is the recipient of a message."""
    found = fetch_one("SELECT recipient_key FROM message WHERE id = ?", (message_id,))
    return found is not None and reported is not None and _names("email", reported, found[0])


def is_new(source: str, key: str) -> bool:
    """Remember the name of a report; False if it was heard before."""
    writing()
    now = clock.now_ms()
    run(
        "DELETE FROM told WHERE (source, key) IN (SELECT source, key FROM told WHERE created_at < ? LIMIT 10)",
        (now - _KEYS_MS,),
    )
    return run("INSERT INTO told VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (source, key[:400], now)) == 1


def _delivered(known: _Known, fact: Fact) -> None:
    run(
        "UPDATE message SET status = 'delivered', delivered_at = ?, updated_at = ? WHERE id = ?",
        (_moment(known, fact), clock.now_ms(), known.row.id),
    )
    ledger.record(known.row, f"{known.row.channel}_delivered", {"source": fact.source})


def _bounced(known: _Known, fact: Fact) -> None:
    row = known.row
    run(
        "UPDATE message SET status = 'bounced', bounced_at = ?, updated_at = ?, error_code = 'returned', "
        "error_smtp = ?, error_enhanced = ?, error_text = ? WHERE id = ?",
        (_moment(known, fact), clock.now_ms(), fact.smtp, fact.enhanced, fact.text[:1000], row.id),
    )
    if not row.test:
        run(
            "UPDATE channel SET fail_count = fail_count + 1 WHERE account_id = ? AND kind = ? AND key = ?",
            (row.account_id, row.kind, row.recipient_key),
        )
    found = outcomes.against(row, judged(fact), fact.source, fact.text)
    event = found.event if row.channel == "email" else f"{row.channel}_failed"
    codes = {"smtp": fact.smtp, "enhanced": fact.enhanced} if row.channel == "email" else {"code": fact.code}
    said = {"reason": "returned", "class": found.name, **codes, "text": fact.text[:1000], "source": fact.source}
    ledger.record(row, event, said)
    if found is classes.HARD and row.campaign_id is not None and not row.test:
        message_counters.against(row.campaign_id, "bounced")


def judged(fact: Fact) -> Class:
    """Return what a bounce means: its codes and words decide, and where they say nothing, who told it."""
    if fact.judged is not None:
        return fact.judged
    found = classes.classify(fact.smtp, fact.enhanced, fact.text)
    if fact.source in _OWN or found in (classes.FULL, classes.DISABLED, classes.EXPIRED):
        return found
    if found.against == "nobody" and found is not classes.REFUSED:
        return found
    return classes.HARD if fact.kind == "bounced" else classes.TEMPORARY


def _complained(known: _Known, fact: Fact) -> None:
    row = known.row
    warm_up.came_back(row, "complaints")
    run(
        "UPDATE message SET status = 'complained', updated_at = ? WHERE id = ?",
        (clock.now_ms(), row.id),
    )
    message_counters.complained(row)
    ledger.record(row, f"{row.channel}_complained", {"source": fact.source, "text": fact.text[:1000]})
    if row.test:
        return  # nobody has complained
    suppress.add(
        row.account_id, Address(row.kind, row.recipient, row.recipient_key),
        Case("complaint", source=fact.source, diagnostic=fact.text[:1000] or None),
        Evidence(source=fact.source, actor="recipient", message_id=row.id),
    )  # fmt: skip
    if row.campaign_id is not None:
        message_counters.against(row.campaign_id, "complained")


def _moment(known: _Known, fact: Fact) -> int:
    """Return when it happened, as reported if that can be."""
    now = clock.now_ms()
    return min(max(fact.at, known.left_at), now) if fact.at is not None else now
