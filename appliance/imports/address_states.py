"""What a row of a file says of addresses: each with its standing, in the words that the rules of consent take."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from appliance.core import addresses, clock
from appliance.core.addresses import Address
from appliance.imports.cells import REASONS, SPACES, STATES, Bad, Read, leave_out, split, word_of

MAX_ADDRESSES = 50
MAX_LISTS = 500
# Where a row gives several reasons, the first of these counts
GRAVITY = ("complaint", "hard_bounce", "manual", "soft_bounce")
_json = msgspec.json.Decoder()


class Given(Struct, array_like=True):
    """An address as a row gives it.

    `consent` is `out` (they left), `off` (not subscribed), `in` (the row says so) or None (the row says nothing).
    Times are Unix milliseconds, of the file's own telling and never in the future.
    """

    kind: str
    key: str
    value: str
    suppression: str | None = None
    consent: str | None = None
    verified: bool = False
    opt_in_at: int | None = None
    opt_out_at: int | None = None

    @property
    def state(self) -> str | None:
        """Return the one word that `rules.outcome` takes."""
        if self.suppression == "complaint":
            return self.suppression
        if self.consent == "in":
            return None
        return self.consent or self.suppression


def phone(text: Any) -> Address:
    """Read a number; raises Bad."""
    try:
        return addresses.phone(str(text))
    except ValueError:
        raise Bad(f"phone is invalid: {str(text)[:40]}") from None


def email(text: Any) -> Address:
    """Read an e-mail address; raises Bad."""
    try:
        return addresses.email(str(text))
    except ValueError:
        raise Bad(f"email is invalid: {str(text)[:100]}") from None


def moment(cell: Any) -> int | None:
    """Read a time, UTC unless it says otherwise; None for what is no time or has not come yet.

    A time beside an opt-out that cannot be read must not lose the opt-out.
    """
    try:
        found = datetime.fromisoformat(str(cell).strip())
    except ValueError:
        return None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    ms = int(found.timestamp() * 1000)
    return ms if 0 < ms <= clock.now_ms() else None


def channels(cell: Any) -> list[Given]:
    """Read the column `channels` of our own export; raises Bad."""
    found = cell
    if isinstance(cell, str):
        try:
            found = _json.decode(cell)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            found = None
    if not isinstance(found, list) or len(found) > MAX_ADDRESSES:
        raise Bad(f"channels is not a list of addresses (maximum is {MAX_ADDRESSES})")
    return [_channel(one) for one in found]


def _channel(one: Any) -> Given:
    if not isinstance(one, dict) or one.get("kind") not in ("email", "phone"):
        raise Bad("channels is not a list of addresses")
    address = (email if one["kind"] == "email" else phone)(one.get("value"))
    reason = STATES.get(word_of(one.get("suppression")))
    told = one.get("subscribed")
    consent = None if told is None else "in" if told else "off"
    if one.get("opted_out_by") == "recipient":
        consent = "out"
    return Given(
        address.kind, address.key, address.value, reason if reason in REASONS else None, consent,
        bool(one.get("verified_at")), moment(one.get("opt_in_at")), moment(one.get("opt_out_at")),
    )  # fmt: skip


def _moment(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    when = moment(cell)
    if when is None:
        leave_out(row, target, cell, "is not a date in the past")
    row[target] = when or row.get(target)


def _channels(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    row["channels"] = channels(cell)


def _lists(row: dict[str, Any], data: dict[str, Any], cell: Any, target: str) -> None:
    parts = cell if isinstance(cell, list) else split(str(cell))
    names = list(dict.fromkeys(text for part in parts if (text := str(part).strip(SPACES))))
    for name in names:
        if len(name) > 255 or not name.isprintable():
            leave_out(row, target, name, "is not the name of a list")
    good = [name for name in names if len(name) <= 255 and name.isprintable()]
    for name in good[MAX_LISTS:]:
        leave_out(row, target, name, f"is one too many (maximum is {MAX_LISTS} lists)")
    row["lists"] = msgspec.json.encode(good[:MAX_LISTS]).decode() if good else None


# Beside `cells.READ`: what only some files say
READ: dict[str, Read] = {"opt_in_at": _moment, "opt_out_at": _moment, "channels": _channels, "lists": _lists}
