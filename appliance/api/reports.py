"""What became of campaigns over the API: the report, the people behind each number, and one of them explained."""

from msgspec import Struct

from appliance.api import shapes, shaping
from appliance.api.declare import Answer, Call, Routes
from appliance.api.reply import page_headers
from appliance.campaigns import explain, recipients, results
from appliance.campaigns.explain import CampaignExplained
from appliance.campaigns.figures import Report
from appliance.campaigns.recipients import RecipientQuery
from appliance.db.work import call
from appliance.fields import ContactId

ROUTES = Routes()


class ExplainQuery(Struct):
    """Of whom."""

    contact_id: ContactId


@ROUTES.add("GET", "/campaigns/{id}/report", scope="campaigns:read", returns=Report)
async def report(request: Call) -> Answer:
    """Report what became of a campaign, each number with the path to its people."""
    return Answer(await call(results.of, request.account_id, request.id))


@ROUTES.add(
    "GET", "/campaigns/{id}/recipients", scope="campaigns:read", query=RecipientQuery, returns=shapes.Message,
    many=True,
)  # fmt: skip
async def people(request: Call) -> Answer:
    """List the people of a campaign with what became of their messages, newest first."""
    page = await call(recipients.page, request.account_id, request.id, request.query)
    return Answer([shaping.message(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/campaigns/{id}/explain", scope="campaigns:read", query=ExplainQuery, returns=CampaignExplained)
async def why(request: Call) -> Answer:
    """Explain why a contact gets a campaign, got it or did not."""
    return Answer(await call(explain.explain, request.account_id, request.id, request.query.contact_id))
