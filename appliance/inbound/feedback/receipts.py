"""What providers tell about SMS: each thing counts once, in whatever order it comes (docs/decisions.md#15).

Providers are quicker than we are: a receipt may come before the answer that says they took the message, or instead of
one that never came. Such a receipt is kept, and applied in the transaction that says what became of the row; one that
names a row in doubt by our own token settles the doubt, for nobody can tell of what they did not take.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from appliance.core import clock, tokens
from appliance.core.errors import NotAllowed, NotFound, Uncertain
from appliance.inbound.feedback import hooks, record
from appliance.inbound.feedback.record import Fact
from appliance.sending.messages import hot, links, manual_decisions, retry_bytes
from appliance.sending.messages.ledger import Claim, Outcome, Prepared
from appliance.sending.sms import codes
from appliance.sending.sms.codes import STATUSES, Receipt, Received, Told
from appliance.sending.sms.providers import PROVIDERS
from appliance.sending.sms.providers.kind import Provider
from appliance.storage.open import fetch_one, rows, run, scalar
from appliance.storage.work import writing

# As long as anything is believed of a message
_KEPT_MS = 14 * 24 * 3600 * 1000
_ROW = "SELECT id, status, doubts, provider_id FROM message WHERE channel = 'sms' AND provider = ? AND"
_COLUMNS = "id, provider, provider_id, message_id, status, code, text"


class _Row(NamedTuple):
    """The message that a receipt is about, as it stands."""

    id: int
    status: str
    doubts: int
    provider_id: str | None

    @property
    def is_in_doubt(self) -> bool:
        """Return whether nobody knows yet if it was taken, be it that it waits to be asked for."""
        return self.status == "uncertain" or (self.status in ("queued", "held") and self.doubts > 0)


def door(hook: str) -> Provider | None:
    """Return the provider who may post to a hook, whether or not it is open."""
    return next((provider for provider in PROVIDERS.values() if hook in provider.hooks), None)


def is_open(hook: str) -> bool:
    """Return whether a hook exists: its provider has a secret in the settings."""
    provider = door(hook)
    return provider is not None and bool(provider.secret())


def read(hook: str, received: Received) -> tuple[str, Told]:
    """Return whose hook it is and what a request says; raises NotFound, NotAllowed where it is forged, or Invalid."""
    provider = door(hook)
    if provider is None or not provider.secret():
        raise NotFound
    try:
        return provider.name, provider.read(hook, received)
    except NotAllowed:
        hooks.say(hook)
        raise


def apply(provider: str, receipt: Receipt) -> bool:
    """Write what became of an SMS with all that follows from it; False if it changes nothing now."""
    writing()
    if receipt.status not in STATUSES:
        return False
    receipt, row = _find(provider, receipt)
    if row is None:
        if receipt.message_id is None:
            _keep(provider, receipt)  # perhaps of one that is on its way: its answer will name it
        return False
    if row.status == "sending":
        _keep(provider, receipt)
        return False
    has_failed = receipt.status in ("undelivered", "failed")
    if has_failed and receipt.provider_id and row.provider_id not in (None, receipt.provider_id):
        return False  # another copy, from a doubt: that it arrived would count, that it failed says nothing of this one
    is_settled = row.is_in_doubt
    if is_settled:
        manual_decisions.arrived(row.id, receipt.provider_id or None)
    if receipt.status == "sent":
        return is_settled
    return record.apply(_fact(provider, receipt, row.id)) or is_settled


def step(found: list[Outcome], marks: list[Claim], process: str) -> set[int]:
    """Write what became of messages as `hot.step`, and what was told of those in doubt before they were."""
    marked = hot.step(found, marks, process)
    # One that was in doubt before still is, whatever became of its second attempt
    doubtful = (
        one for one in found if one.error is not None and (one.claim.doubts or isinstance(one.error, Uncertain))
    )
    _catch_up([one.claim.id for one in doubtful if one.claim.channel == "sms"], [])
    return marked


def apply_early(found: list[Outcome]) -> None:
    """Write what was told of SMS before they were written down as accepted, and with the answer itself."""
    _catch_up([one.claim.id for one in found], [one.provider_id for one in found if one.provider_id])
    for told in found:
        if told.first_status != "sent":
            apply(told.claim.provider, Receipt(told.provider_id or "", told.first_status, told.claim.id))


def recover(found: list[tuple[Claim, Prepared | None]]) -> int:
    """Decide about rows that were in hand as `repeats.recover`, with what was told of them meanwhile."""
    count = retry_bytes.recover(found)
    _catch_up([claim.id for claim, _ in found if claim.channel == "sms"], [])
    return count


def _find(provider: str, receipt: Receipt) -> tuple[Receipt, _Row | None]:
    """Return a receipt and its row: by what its provider calls it, by the token of ours that came back, or by our id.

    By our id alone only where its provider has said another name for it that cannot be meant: letters are in it.
    """
    found = None
    if receipt.provider_id:
        # A gateway that calls several by one name gives our token back with each
        found = fetch_one(
            f"{_ROW} provider_id = ? ORDER BY id IS NOT DISTINCT FROM ? DESC, id DESC LIMIT 1",
            (provider, receipt.provider_id, receipt.message_id),
        )
    if found is None and receipt.message_id is not None:
        found = fetch_one(f"{_ROW} id = ?", (provider, receipt.message_id))
    if found is None and receipt.message_id is None and re.fullmatch(r"[1-9][0-9]{0,14}", receipt.provider_id):
        found = fetch_one(f"{_ROW} id = ? AND provider_id GLOB '*[^0-9]*'", (provider, int(receipt.provider_id)))
        if found is not None:
            receipt = receipt._replace(provider_id=found[3])
    return receipt, _Row(*found) if found is not None else None


def _keep(provider: str, receipt: Receipt) -> None:
    now = clock.now_ms()
    run(
        "DELETE FROM receipt WHERE id IN (SELECT id FROM receipt WHERE created_at < ? ORDER BY created_at LIMIT 10)",
        (now - _KEPT_MS,),
    )
    name = receipt.provider_id or f"#{receipt.message_id}"
    run(
        "INSERT INTO receipt (provider, provider_id, message_id, status, code, text, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (provider_id, provider, status) DO UPDATE SET "
        "message_id = coalesce(excluded.message_id, message_id)",
        (provider, name[:200], receipt.message_id, receipt.status, receipt.code, receipt.text[:1000], now),
    )


def _catch_up(numbers: Sequence[int], names: Sequence[str]) -> None:
    """Apply what was kept about messages; what cannot be yet is kept again."""
    if not numbers or scalar("SELECT 1 FROM receipt LIMIT 1") is None:
        return
    encode = msgspec.json.encode
    kept = rows(
        f"SELECT {_COLUMNS} FROM receipt WHERE message_id IN (SELECT value FROM json_each(?)) UNION "
        f"SELECT {_COLUMNS} FROM receipt WHERE provider_id IN (SELECT value FROM json_each(?)) ORDER BY 1",
        (encode(numbers).decode(), encode(names).decode()),
    )
    for number, provider, *told in kept:
        run("DELETE FROM receipt WHERE id = ?", (number,))
        apply(provider, _receipt(*told))


def _receipt(provider_id: str, message_id: int | None, status: str, code: str | None, text: str | None) -> Receipt:
    name = "" if provider_id.startswith("#") else provider_id
    return Receipt(name, status, message_id, code, text or "")


def apply_all(provider: str, receipts: Iterable[Receipt]) -> None:
    """Write what several receipts say."""
    for receipt in receipts:
        apply(provider, receipt)


def _fact(provider: str, receipt: Receipt, number: int) -> Fact:
    if receipt.status == "delivered":
        return Fact(number, "delivered", provider)
    found = codes.kind(receipt.code or receipt.text)
    words = codes.words(receipt.code, receipt.text)
    kind: Any = "soft_bounced" if found.against in ("third", "fifth") else "bounced"
    return Fact(number, kind, provider, words, code=receipt.code, judged=found)


# What we signed that stands in a mail that came back: which of our messages it names, and whether that is proof.
#
# A Message-ID is quoted by every reply, and the unsubscribe link by most, so they only say which message is meant.
# The return path and the unsubscribe address stand in headers alone: only systems that had the message itself know
# them.

_HEADERS = ("return-path", "list-unsubscribe", "received", "delivered-to", "x-original-to", "errors-to")
_PATH = re.compile(r"\b(b\+[0-9a-f]{20,40})@", re.IGNORECASE)
_LINK = re.compile(r"/u/([A-Za-z0-9_-]{20,60})")
_MAILTO = re.compile(r"unsubscribe\+([0-9a-f]{20,80})@", re.IGNORECASE)
_MAX_TOKENS = 10


class Signed(NamedTuple):
    """The messages that are named by any signature, and those named by one that is proof."""

    named: frozenset[int]
    proven: frozenset[int]


def find_signed(headers: list[tuple[str, str]], text: str = "") -> Signed:
    """Return which messages the signatures name in the headers of an original message, and in a text beside it."""
    told = "\n".join([text, *(value for name, value in headers if name in _HEADERS)])
    proven = {links.returned_to(path) for path in _PATH.findall(told)[:_MAX_TOKENS]}
    proven |= {tokens.read_hex(links.LEAVE, token, 16) for token in _MAILTO.findall(told)[:_MAX_TOKENS]}
    named = {links.message_of(value) for name, value in headers if name == "message-id"}
    named |= {tokens.read(links.UNSUBSCRIBE, token) for token in _LINK.findall(told)[:_MAX_TOKENS]}
    return Signed(frozenset(proven | named) - {None}, frozenset(proven) - {None})  # type: ignore[arg-type]  # None is out
