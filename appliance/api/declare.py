"""How an endpoint is declared: path, what it reads, what it answers. Requests and the document follow from it."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from msgspec import Struct
from sanic import Request

from appliance.accounts.acting import By
from appliance.accounts.keys import Credential
from appliance.accounts.rate_limits import Rate
from appliance.core.errors import Invalid
from appliance.core.fields import Read
from appliance.storage.work import call, render


class Call(NamedTuple):
    """One request, read and allowed."""

    request: Request
    credential: Credential
    id: int
    body: Any
    query: Any
    raw: Any
    inner: int = 0  # the second id of a path, of a thing within the first
    read: Read | None = None  # of a body with faults: what is right of it is `body`
    ignored: list[str] = []  # keys of the body that change nothing; a handler adds those that only it knows

    @property
    def account_id(self) -> int:
        """The account that the credential belongs to."""
        return self.credential.account_id

    @property
    def actor(self) -> str:
        """Who asks, for consent rows and the audit."""
        return self.credential.actor

    @property
    def by(self) -> By:
        """Who asks, with what they may approve of and where they are."""
        who = self.credential
        approves, sends = who.reaches("campaigns:approve"), who.reaches("campaigns:send")
        return By(who.actor, self.request.ctx.client, who.user_id, approves, who.test, sends, who.made_by)


class Answer(NamedTuple):
    """What goes back: a shape or a list of shapes; for a route with `media` bytes, or an iterator of pieces of them.

    Each step of an iterator is one read on the reader pool, so it may use the database in whole queries only.
    """

    value: Any
    status: int | None = None
    headers: dict[str, str] = {}
    media: str | None = None  # of bytes that are of the route's other type (`or_media`)


_SECOND = re.compile(r"\{(\w+_id)\}")

Handler = Callable[[Call], Awaitable[Answer]]


class Route(NamedTuple):
    """One endpoint."""

    method: str
    path: str
    handler: Handler
    scope: str
    summary: str
    returns: type[Struct] | None
    many: bool
    status: int
    reads: type[Struct] | None
    query: type[Struct] | None
    body_required: bool
    also: tuple[int, ...]  # further statuses of success
    idempotent: bool
    media: str | None  # what is answered, where that is not JSON
    form: type[Struct] | None  # multipart: the texts that come beside `file`; the handler receives both itself
    # Says what is wrong inside keys that have readers of their own, where others are wrong too: all faults are told
    inside: Callable[[Call], Awaitable[dict[str, list[str]]]] | None
    or_media: str | None = None
    rate: Rate = "requests"  # the bucket it draws from (docs/decisions.md#4)
    starts: bool = False  # lets things go out or stops them, though its scope is one for writing: not for authors

    @property
    def has_id(self) -> bool:
        """Whether its path names one thing."""
        return "{id}" in self.path

    @property
    def second_id(self) -> str | None:
        """The name of a second id in its path, as `run_id` of `/flows/{id}/runs/{run_id}`."""
        found = _SECOND.search(self.path)
        return found[1] if found else None


class Routes(list[Route]):
    """The endpoints of one noun, in the order they are declared."""

    def add(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        returns: type[Struct] | None = None,
        many: bool = False,
        status: int = 200,
        reads: type[Struct] | None = None,
        query: type[Struct] | None = None,
        body_required: bool = True,
        also: tuple[int, ...] = (),
        idempotent: bool = False,
        media: str | None = None,
        form: type[Struct] | None = None,
        inside: Callable[[Call], Awaitable[dict[str, list[str]]]] | None = None,
        or_media: str | None = None,
        rate: Rate = "requests",
        starts: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Declare an endpoint below `/v1/my` that answers a shape (`returns`) or other bytes (`media`).

        Its summary is the handler's docstring.
        """

        def keep(handler: Handler) -> Handler:
            summary = (handler.__doc__ or "").strip().splitlines()[0]
            self.append(
                Route(
                    method, path, handler, scope, summary, returns, many, status, reads, query,
                    body_required and reads is not None, also, idempotent, media, form, inside, or_media, rate, starts,
                )
            )  # fmt: skip
            return handler

        return keep


# All faults of a request at once: sound values are checked though others are wrong (docs/decisions.md#3).

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


# Paths outside of the declared endpoints: where people sign in and out, and where forms are submitted.

LOGIN = ("/v1/login", "/v1/my/login")
LOGOUT = ("/v1/logout", "/v1/my/logout")
SUBMIT = "/v1/public/forms/{public_key}"
