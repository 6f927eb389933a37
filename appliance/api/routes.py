"""Every endpoint of the API, in the order of the document."""

from appliance.api import (
    account,
    brand,
    campaigns,
    capture,
    contacts,
    delivery,
    domains,
    events,
    exports,
    forms,
    imports,
    lists,
    messages,
    reports,
    segments,
    suppressions,
    templates,
    uploads,
)
from appliance.api.declare import Route

ROUTES: tuple[Route, ...] = (
    *messages.ROUTES,
    *campaigns.ROUTES,
    *reports.ROUTES,
    *contacts.ROUTES,
    *suppressions.ROUTES,
    *exports.ROUTES,
    *lists.ROUTES,
    *segments.ROUTES,
    *imports.ROUTES,
    *forms.ROUTES,
    *templates.ROUTES,
    *uploads.ROUTES,
    *brand.ROUTES,
    *domains.ROUTES,
    *account.ROUTES,
    *delivery.ROUTES,
    *capture.ROUTES,
    *events.ROUTES,
)
