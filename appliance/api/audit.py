"""The audit over the API: for owners and admins who signed in (docs/decisions.md#2)."""

from appliance.accounts import audit
from appliance.accounts.audit import AuditQuery
from appliance.accounts.roles import RULE
from appliance.api import people_shapes as shapes
from appliance.api.declare import Answer, Call, Routes
from appliance.api.reply import page_headers
from appliance.storage.work import call

ROUTES = Routes()


@ROUTES.add("GET", "/audit", scope=RULE, query=AuditQuery, returns=shapes.AuditEntry, many=True)
async def index(request: Call) -> Answer:
    """List who did what, newest first; it is kept for good, and nobody changes it."""
    page = await call(audit.page, request.account_id, request.query)
    names = await call(audit.names, request.account_id)
    return Answer([shapes.entry(row, names) for row in page.rows], headers=page_headers(page))
