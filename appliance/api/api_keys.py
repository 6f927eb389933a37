"""Keys over the API: for owners and admins who signed in; no key makes or ends a key (docs/decisions.md#2)."""

from appliance.account import keys
from appliance.account.keys import KeyWrite
from appliance.account.roles import RULE
from appliance.api import people_shapes as shapes
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked
from appliance.api.reply import page_headers
from appliance.db.work import call, commit
from appliance.fields import PageQuery

ROUTES = Routes()


@ROUTES.add("GET", "/api_keys", scope=RULE, query=PageQuery, returns=shapes.ApiKey, many=True)
async def index(request: Call) -> Answer:
    """List the keys that open something, newest first."""
    page = await call(keys.page, request.account_id, request.query)
    return Answer([shapes.key(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add(
    "POST", "/api_keys", scope=RULE, reads=KeyWrite, returns=shapes.ApiKeyWithSecret, status=201,
    inside=checked(keys.check),
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Create a key; the answer alone shows it."""
    made, secret = await commit(keys.make, request.account_id, request.body, request.by)
    return Answer(shapes.with_secret(made, secret))


@ROUTES.add("DELETE", "/api_keys/{id}", scope=RULE, returns=shapes.ApiKey)
async def delete(request: Call) -> Answer:
    """Revoke a key; it opens nothing from the next request on."""
    return Answer(shapes.key(await commit(keys.revoke, request.account_id, request.id, request.by)))
