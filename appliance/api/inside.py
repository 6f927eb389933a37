"""All faults of a request at once: what its types let through is looked at too where others do not (decisions, 3)."""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, Struct

from appliance import reader
from appliance.api.declare import Call
from appliance.db.work import call
from appliance.errors import Invalid
from appliance.patterns import late

_ROOT = late(r"[.\[]")


def checked(
    check: Callable[[int, Any, Any], Any], whole: bool = False
) -> Callable[[Call], Awaitable[dict[str, list[str]]]]:
    """Make a route's `inside` of what the verb begins with: a check by account, request and id that raises Invalid.

    It sees what is sound of the request, with the rest as if it had not been sent; what it says of the rest, and of the
    request as a whole, is left out. With `whole` that is told too: it holds whatever the request says.
    """

    async def more(request: Call) -> dict[str, list[str]]:
        if request.body is None:
            return {}
        try:
            await call(check, request.account_id, request.body, request.id or None)
        except Invalid as refused:
            return of_sound(request, refused, whole)
        return {}

    return more


def of_sound(request: Call, refused: Invalid, whole: bool = False) -> dict[str, list[str]]:
    """Answer what a refusal says of the keys that are sound."""
    kind: type[Struct] = type(request.body)
    lost = {
        info.encode_name
        for info in reader.declared(kind)
        if info.encode_name in request.raw and getattr(request.body, info.name) is UNSET
    }
    if not whole:
        lost.add("base")
    return {path: said for path, said in refused.fields.items() if _ROOT.split(path)[0] not in lost}
