"""Health: the findings of `campanero doctor`, looked for when somebody asks."""

import asyncio
import logging
from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import subprocesses
from appliance.settings import config
from ui import view
from ui.forms import Form
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_doctor", url_prefix="/settings/doctor")
log = logging.getLogger("campanero.ui")
_SECONDS = 90.0
# One look at a time: each is a process of its own
_looking = asyncio.Lock()


@pages.get("/", name="show", strict_slashes=False)
@signed_in
async def show(request: Request, visit: Visit) -> HTTPResponse:
    """What can be checked; nothing is until somebody asks."""
    return _page(request, visit, None)


@pages.post("/", name="look", strict_slashes=False)
@signed_in
async def look(request: Request, visit: Visit) -> HTTPResponse:
    """Look everything over, beside all that goes on."""
    seed = ("--seed",) if Form.of(request)["seed"] else ()
    directory = str(config.current().data_dir)
    words = ("doctor", "--json", "--account", str(visit.account_id), "--data", directory, *seed)
    async with _looking:
        try:
            said = await asyncio.to_thread(subprocesses.output, *words, seconds=_SECONDS)
            found = msgspec.json.decode(said)["findings"]
        except (TimeoutError, msgspec.DecodeError, KeyError) as error:
            log.warning("the doctor did not answer: %s", error)
            found = [{"level": "fail", "check": "doctor", "words": f"did not answer: {error}", "fix": ""}]
    return _page(request, visit, found)


def _page(request: Request, visit: Visit, found: list[dict[str, Any]] | None) -> HTTPResponse:
    order = {"fail": 0, "warn": 1, "ok": 2}
    ordered = None if found is None else sorted(found, key=lambda one: order[one["level"]])
    may = visit.user.role in ("owner", "admin")
    return view.page(request, "settings/doctor.html", found=ordered, may=may)
