"""All faults of a request at once: sound values are checked though others are wrong (docs/decisions.md#3)."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from appliance.api.declare import Call
from appliance.db.work import call, render
from appliance.errors import Invalid
from appliance.fields import Read

_BLANK = "can't be blank"
Check = Callable[[int, Any, Any], Any]
_PART = re.compile(r"\[(\d+)\]")


def checked(
    check: Check, whole: bool = False, either: tuple[str, ...] = (), parses: bool = False
) -> Callable[[Call], Awaitable[dict[str, list[str]]]]:
    """Make a route's `inside` of what the verb begins with: a check by account, request and id that raises Invalid.

    It sees what is right of the request, with the rest as if it had not been sent; what it says of the rest, and of the
    request as a whole, is left out. With `whole` that is told too: it holds whatever the request says. One key of
    `either` has to be sent: where one is and is wrong, none of the others is missing. A check that `parses` templates
    runs on the threads for that.
    """

    async def more(request: Call) -> dict[str, list[str]]:
        if request.body is None:
            return {}
        try:
            await (render if parses else call)(check, request.account_id, request.body, request.id or None)
        except Invalid as refused:
            assert request.read is not None  # only what was read can be checked
            return of_sound(request.read, refused, whole, either)
        return {}

    return more


def of_sound(
    read: Read, refused: Invalid, whole: bool = False, either: tuple[str, ...] = ()
) -> dict[str, list[str]]:  # fmt: skip
    """Return what a refusal says of that part of a request which could be read, at the paths where it was sent."""
    lost = {*read.faults.fields, *([] if whole else ["base"])}
    is_one_sent = not lost.isdisjoint(either)
    found = {}
    for path, messages in refused.fields.items():
        sent = _as_sent(path, read.kept)
        is_lost = any(sent == one or sent.startswith((f"{one}.", f"{one}[")) for one in lost)
        if not is_lost and not (is_one_sent and path in either and messages == [_BLANK]):
            found[sent] = messages
    return found


def _as_sent(path: str, kept: dict[str, list[int]]) -> str:
    """Return a path with the indexes of the request, where wrong entries of a list were left out before a check."""
    sent, end = "", 0
    for match in _PART.finditer(path):
        sent += path[end : match.start()]
        index, end = int(match[1]), match.end()
        sent += f"[{kept[sent][index] if sent in kept else index}]"
    return sent + path[end:]
