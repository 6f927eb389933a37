"""What people wrote back by SMS, also from numbers that are nobody's, and what somebody of the team has to look at."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import fields
from appliance.inbound.conversations import reading
from appliance.inbound.conversations.reading import IncomingQuery, Seen
from appliance.storage.work import call, commit
from ui import people, rights, view
from ui.forms import Form, number
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_answers", url_prefix="/activity/answers")
KINDS = {
    "stop": ("stopped", "STOP"), "refusal": ("paused", "No more SMS"), "start": ("done", "START"),
    "help": ("sending", "HELP"), "keyword": ("sched", "Keyword"),
}  # fmt: skip


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """All answers, newest first, or those that may be a refusal and that nobody has looked at."""
    unseen = request.args.get("show") == "unseen"
    raw: dict[str, Any] = {"page": number(request.args.get("page")), "limit": 50}

    def read() -> tuple[Any, dict[int, Any], int]:
        waiting = reading.page(visit.account_id, IncomingQuery(unseen=True, limit=1)).total
        found = reading.page(visit.account_id, fields.read(IncomingQuery, raw | ({"unseen": True} if unseen else {})))
        return found, people.by_id({row.contact_id for row in found.rows if row.contact_id}), waiting

    found, known, waiting = await call(read)
    return view.page(
        request, "activity/answers.html", found=found, known=known, waiting=waiting, unseen=unseen, kinds=KINDS,
        may_write=rights.may(visit.user.role, "POST", request.path),
    )  # fmt: skip


@pages.post("/<incoming_id:int>/seen", name="seen")
@signed_in
async def seen(request: Request, visit: Visit, incoming_id: int) -> HTTPResponse:
    """Note that somebody has looked at an answer, and take its sender at it where it was a refusal."""
    meant = Form.of(request)["opt_out"] == "yes"
    await commit(reading.see, visit.account_id, incoming_id, Seen(meant), visit.actor)
    view.say(request, "They get no more SMS." if meant else "Noted: they may be written to as before.")
    return view.go(request, "/activity/answers?show=unseen")
