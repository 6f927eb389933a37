"""Tells a restored database who left since its backup: what the journal of refusals says, done once more.

Only refusals: what people agreed to since is gone with all else that is newer than the backup, what they refused is
not. Doing it again where it is known already changes nothing.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from appliance import clock, tokens
from appliance.contacts import choices, consent, erase
from appliance.contacts.consent import Evidence
from appliance.db import work
from appliance.db.open import one, rows, run
from appliance.db.work import writing
from appliance.errors import NotFound
from appliance.tables import Channel

_EVIDENCE = Evidence("restore", "system")
_CHUNK = 500


class Replayed(NamedTuple):
    """How many refusals were told to a database, by what they were."""

    opt_outs: int = 0
    suppressions: int = 0
    lists_left: int = 0
    tracking: int = 0
    erased: int = 0


def replay(lines: Iterable[dict[str, Any]]) -> Replayed:
    """Do what the lines of a journal say, in their order, and answer how much of it was new here."""
    known, found, part = _Known(), Counter[str](), list[dict[str, Any]]()
    for line in lines:
        part.append(line)
        if len(part) == _CHUNK:
            found += work.write(_some, known, part)
            part = []
    found += work.write(_some, known, part)
    return Replayed(found["opt_out"], found["suppressed"], found["list_left"], found["tracking"], found["erased"])


class _Known:
    """Whose an address is: hashes tell nothing, so those of all channels are made once."""

    def __init__(self) -> None:
        hashed = tokens.address_hasher()
        self._ids = {
            (account, kind, hashed(kind, key)): number
            for number, account, kind, key in rows("SELECT id, account_id, kind, key FROM channel")
        }

    def channel(self, account_id: int, kind: str, hashed: bytes) -> Channel | None:
        """Return the channel that has an address, as it is now."""
        number = self._ids.get((account_id, kind, hashed))
        return Channel.get_or_none(Channel.id == number) if number is not None else None


def _some(known: _Known, lines: list[dict[str, Any]]) -> Counter[str]:
    writing()
    found = Counter[str]()
    for line in lines:
        account = line["account"]
        if one("SELECT 1 FROM account WHERE id = ?", (account,)) is None:
            continue  # it was made after the backup, and is gone with all it had
        if line["act"] == "erased":
            found["erased"] += _erased(account, line["contact"])
        elif act := _ACTS.get(line["act"]):
            hashed = bytes.fromhex(line["hash"])
            found[line["act"]] += act(line, hashed, known.channel(account, line["kind"], hashed))
    return found


def _erased(account_id: int, contact_id: int) -> bool:
    try:
        erase.erase(account_id, contact_id, _EVIDENCE)
    except NotFound:
        return False
    return True


def _opt_out(line: dict[str, Any], hashed: bytes, channel: Channel | None) -> bool:
    by: Literal["recipient", "operator"] = "operator" if line["by"] == "operator" else "recipient"
    if channel is not None:
        return consent.opt_out(channel, by, _EVIDENCE)
    if consent.remembered(line["account"], line["kind"], hashed) is not None:
        return False
    consent.remember_hash(line["account"], line["kind"], hashed, by, line["at"])
    return True


def _suppressed(line: dict[str, Any], hashed: bytes, channel: Channel | None) -> bool:
    account, kind, reason = line["account"], line["kind"], line["reason"]
    expires = line.get("expires_at")
    if expires is not None and expires <= clock.now_ms():
        return False
    made = run(
        "INSERT INTO suppression (account_id, kind, address_hash, address, reason, source, created_at, expires_at) "
        "VALUES (?, ?, ?, ?, ?, 'restore', ?, ?) ON CONFLICT DO NOTHING",
        (account, kind, hashed, channel.value if channel and reason != "erased" else None, reason, line["at"], expires),
    )
    if channel is not None:
        channel.suppression = consent.in_force(channel)
        run("UPDATE channel SET suppression = ? WHERE id = ?", (channel.suppression, channel.id))
    if made:
        contact = channel.contact_id if channel is not None else None
        consent.record(account, (kind, hashed), "suppressed", line["by"], _EVIDENCE, contact, {"reason": reason})
    return bool(made)


def _list_left(line: dict[str, Any], hashed: bytes, channel: Channel | None) -> bool:
    number = line.get("list")
    if channel is None or number is None:
        return False
    refused = choices.is_refused(channel.contact_id, [number])
    return not refused and choices.leave(channel, number, _EVIDENCE)


def _tracking(line: dict[str, Any], hashed: bytes, channel: Channel | None) -> bool:
    return channel is not None and choices.track(channel, line["tracking"], _EVIDENCE)


_ACTS = {"opt_out": _opt_out, "suppressed": _suppressed, "list_left": _list_left, "tracking": _tracking}
