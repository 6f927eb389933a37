"""The list of all endpoints, in the order of the OpenAPI document."""

from appliance.api import (
    account,
    campaigns,
    contacts,
    delivery,
    events,
    flow_runs,
    flows,
    forms,
    imports_exports,
    messages,
    segments,
    team,
    templates,
    webhooks,
)
from appliance.api.endpoints import Route

ROUTES: tuple[Route, ...] = (
    *messages.ROUTES,
    *campaigns.ROUTES,
    *contacts.ROUTES,
    *segments.ROUTES,
    *imports_exports.ROUTES,
    *forms.ROUTES,
    *templates.ROUTES,
    *flows.ROUTES,
    *flow_runs.ROUTES,
    *account.ROUTES,
    *delivery.ROUTES,
    *team.ROUTES,
    *events.ROUTES,
    *webhooks.ROUTES,
)
