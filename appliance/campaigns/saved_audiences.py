"""The people behind a number of a report as something that lasts: the filters of a segment that finds them."""

from typing import Any

from msgspec import UNSET

from appliance.campaigns.recipients import RecipientQuery

Filters = list[dict[str, Any]]
# Filters of recipients that say something a segment cannot ask
_OUT = ("status", "domain", "country", "problem", "pending", "unsubscribed", "contact_id")


def filters(campaign_id: int, query: RecipientQuery) -> Filters | None:
    """Return the filters of a segment that finds who a query of recipients finds; None where there are none such."""
    if any(getattr(query, name) is not UNSET for name in _OUT) or query.accepted is False:
        return None
    asked = {"opened": query.opened, "clicked": query.clicked}
    if "machines" in asked.values() or all(one is UNSET for one in (query.accepted, query.link, *asked.values())):
        return None
    made: Filters = []
    if query.accepted is True or "nobody" in asked.values():
        made.append({"name": "campaign_sent", "predicate": "eq", "value": campaign_id})
    for name, by in asked.items():
        if isinstance(by, str):
            predicate = "eq" if by == "people" else "not_eq"
            made.append({"name": f"campaign_{name}", "predicate": predicate, "value": campaign_id})
    if isinstance(query.link, int):
        where = [{"name": f"event.{name}", "predicate": "eq", "value": value}
                 for name, value in (("campaign_id", campaign_id), ("link", query.link))]  # fmt: skip
        made.append({"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "where": where}})
    return made
