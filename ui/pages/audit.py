"""The audit: who did what, newest first, narrowed by who, what and when, and taken along as a file."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit
from appliance.accounts.audit import AuditQuery
from appliance.core import errors, fields
from appliance.exports import deeds as exporting
from appliance.storage.work import call
from ui import deeds, exports, view
from ui.forms import number
from ui.guard import signed_in
from ui.pages.activity import day
from ui.session import Pages, Visit

pages = Pages("ui_audit", url_prefix="/settings/audit")
# What the page is narrowed by, by the names of the filters
_FILTERS = {"actor": "actor", "action": "action", "subject": "subject", "from": "created_after", "to": "created_before"}
_MARK = "\ufeff"


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """What was done, newest first."""
    _refuse_others(visit)
    asked = _asked(request)

    def read() -> dict[str, Any]:
        return {
            "found": audit.page(visit.account_id, _query(asked, number(request.args.get("page")))),
            "names": audit.names(visit.account_id), "actors": audit.actors(visit.account_id),
            "actions": sorted((deeds.said(one), one) for one in audit.actions(visit.account_id)),
        }  # fmt: skip

    return view.page(
        request, "settings/audit.html", also=("export",), asked=asked, deeds=deeds,
        is_filtered=any(asked.values()), **await call(read),
    )  # fmt: skip


@pages.get("/audit.csv", name="file")
@signed_in
async def file(request: Request, visit: Visit) -> HTTPResponse | None:
    """The same as a file."""
    _refuse_others(visit)
    asked = _asked(request)
    lines = exporting.csv(visit.account_id, _query(asked, 1))
    rows = (await call(audit.page, visit.account_id, _query(asked, 1))).total
    narrowed = [name for name, value in asked.items() if value]
    await audit.exported(visit.by, visit.account_id, "audit.csv", narrowed, rows)
    return await exports.send_file(request, "audit.csv", "text/csv; charset=utf-8", _marked(lines))


def _marked(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines behind the mark that lets spreadsheets read every letter right."""
    mark = _MARK
    for line in lines:
        yield mark + line
        mark = ""


def _refuse_others(visit: Visit) -> None:
    if visit.user.role not in ("owner", "admin"):
        raise errors.NotAllowed("Only owners and admins see the audit.")


def _asked(request: Request) -> dict[str, str]:
    """Return what the page is narrowed by; a day that is none is no filter."""
    found = {name: (request.args.get(name) or "").strip()[:120] for name in _FILTERS}
    for name in ("from", "to"):
        if day(found[name]) is None:
            found[name] = ""
    return found


def _query(asked: dict[str, str], page: int) -> AuditQuery:
    raw: dict[str, Any] = {_FILTERS[name]: value for name, value in asked.items() if value}
    if last := day(asked["to"]):
        raw["created_before"] = (last + timedelta(days=1)).isoformat()  # the last day is meant to its end
    return fields.read(AuditQuery, {**raw, "page": page, "limit": 50}, loose=True)
