"""/flows/{id}: rehearsals, which write nothing."""

from appliance.api.auth import require
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import page_headers
from appliance.core.fields import PageQuery
from appliance.flows import bulk_simulation, scripts, simulate
from appliance.flows.bulk_simulation import Crowd, CrowdRequest, rehearse
from appliance.flows.scripts import ScriptResult
from appliance.flows.simulation_request import SimulateRequest
from appliance.flows.timeline import Simulated

ROUTES = Routes()
_one_faults, _many_faults = checked(simulate.check, parses=True), checked(bulk_simulation.check, parses=True)


async def _one_inside(request: Call) -> dict[str, list[str]]:
    _may_be_asked(request)
    return await _one_faults(request)


async def _many_inside(request: Call) -> dict[str, list[str]]:
    _may_see_people(request)
    return await _many_faults(request)


@ROUTES.add(
    "POST", "/flows/{id}/simulate", scope="flows:read", reads=SimulateRequest, body_required=False, returns=Simulated,
    rate="renders", inside=_one_inside,
)  # fmt: skip
async def one(request: Call) -> Answer:
    """Rehearse a flow with one person, real or made up: what would happen when, and why; nothing is sent or stored."""
    _may_be_asked(request)
    sees = request.credential.reaches("contacts:read")
    return Answer(await rehearse(simulate.simulate, request.account_id, request.id, request.body, sees))


@ROUTES.add(
    "POST", "/flows/{id}/simulate_all", scope="flows:read", reads=CrowdRequest, body_required=False, returns=Crowd,
    rate="renders", inside=_many_inside,
)  # fmt: skip
async def many(request: Call) -> Answer:
    """Rehearse a flow with everybody who met its trigger of late: how many would take which way."""
    _may_see_people(request)
    return Answer(await rehearse(bulk_simulation.simulate_all, request.account_id, request.id, request.body))


@ROUTES.add("GET", "/flows/{id}/scripts", scope="flows:read", query=PageQuery, returns=ScriptResult, many=True,
            rate="renders")  # fmt: skip
async def kept(request: Call) -> Answer:
    """Play the rehearsals that are kept with a flow (`data.scripts`), and say which of them come out as expected."""
    sees = request.credential.reaches("contacts:read")
    page = await rehearse(scripts.page, request.account_id, request.id, request.query, sees)
    return Answer(page.rows, headers=page_headers(page))


def _may_be_asked(request: Call) -> None:
    if request.body is not None and request.body.contact_id:
        _may_see_people(request)


def _may_see_people(request: Call) -> None:
    """Raise 403 for a credential that may see flows and not people: a rehearsal shows what a message says of one."""
    require(request.credential, "contacts:read")
