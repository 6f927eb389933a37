"""Suppressions over the API."""

from appliance.accounts import audit
from appliance.api import contact_shapes
from appliance.api.contacts import evidence
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.reply import page_headers
from appliance.audience.contacts import suppress
from appliance.audience.contacts.suppress import Lift, SuppressionQuery, SuppressionWrite
from appliance.storage.work import call, commit

ROUTES = Routes()


@ROUTES.add(
    "GET", "/suppressions", scope="contacts:read", query=SuppressionQuery, returns=contact_shapes.Suppression, many=True
)
async def index(request: Call) -> Answer:
    """List suppressions, newest first."""
    page = await call(suppress.page, request.account_id, request.query)
    return Answer([contact_shapes.suppression(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/suppressions", scope="contacts:write", reads=SuppressionWrite, inside=checked(suppress.check),
    returns=contact_shapes.Suppression,
    status=201, also=(200,),
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Suppress an address; one that is suppressed for this reason already is brought up to date (then 200)."""
    added = await commit(_suppressed, request)
    return Answer(contact_shapes.suppression(added.suppression), 201 if added.created else 200)


@ROUTES.add(
    "DELETE", "/suppressions/{id}", scope="contacts:write", reads=Lift, query=Lift, body_required=False,
    returns=contact_shapes.Suppression,
)  # fmt: skip
async def delete(request: Call) -> Answer:
    """Lift a suppression; `reason`, in body or query, says why."""
    why = next((one.reason for one in (request.body, request.query) if isinstance(one.reason, str)), None)
    gone = await commit(
        audit.noting, request.by, "suppression_lift", suppress.lift, request.account_id, request.id, why,
        evidence(request),
    )  # fmt: skip
    return Answer(contact_shapes.suppression(gone))


def _suppressed(request: Call) -> suppress.Added:
    added = suppress.write(request.account_id, request.body, evidence(request))
    audit.note(request.by, request.account_id, "suppression_add", f"suppression:{added.suppression.id}")
    return added
