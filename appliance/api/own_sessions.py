"""Where somebody is signed in, over the API: their browsers, and the programs that hold a JWT of theirs."""

from typing import Literal, cast

from msgspec import Struct

from appliance import tables
from appliance.account import sessions
from appliance.account.roles import SELF
from appliance.api import reply
from appliance.api.declare import Answer, Call, Routes
from appliance.api.shapes import Moment
from appliance.clock import iso
from appliance.db.work import call, commit
from appliance.fields import PageQuery

ROUTES = Routes()


class SignIn(Struct):
    """A sign-in that holds."""

    id: int
    kind: Literal["browser", "token"]
    current: bool
    ip: str | None
    user_agent: str | None
    last_seen_at: Moment
    expires_at: Moment
    created_at: Moment


@ROUTES.add("GET", "/user/sessions", scope=SELF, returns=SignIn, many=True, query=PageQuery)
async def index(request: Call) -> Answer:
    """List where one is signed in, the newest first."""
    page = await call(sessions.page, _own_id(request), request.query)
    rows = [_shape(row, request) for row in page.rows]
    return Answer(rows, headers=reply.page_headers(page))


@ROUTES.add("DELETE", "/user/sessions/{id}", scope=SELF, returns=SignIn)
async def close(request: Call) -> Answer:
    """End one of one's own sign-ins; its cookie or token opens nothing any more."""
    return Answer(_shape(await commit(sessions.close, _own_id(request), request.id, request.by), request))


def _own_id(request: Call) -> int:
    """Return who asks; only a person comes here."""
    assert request.credential.user_id is not None
    return request.credential.user_id


def _shape(row: tables.Session, request: Call) -> SignIn:
    kind = cast(Literal["browser", "token"], row.kind)
    return SignIn(
        row.id, kind, row.id == request.credential.session_id, row.ip, row.user_agent,
        iso(row.last_seen_at) or "", iso(row.expires_at) or "", iso(row.created_at) or "",
    )  # fmt: skip
