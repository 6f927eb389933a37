"""Templates that are put away: out of the lists, with all they were, until somebody brings them back."""

from typing import Any

from appliance.content.templates import store
from appliance.core import clock
from appliance.core.errors import Invalid
from appliance.core.pagination import Page, paginate
from appliance.storage.models import Template
from appliance.storage.open import fetch_one
from appliance.storage.work import writing


def page(account_id: int, number: int, limit: int, search: str = "") -> Page:
    """List what is put away, the last first; `search` is a part of the name or the subject."""
    found = matching(account_id, search)
    return paginate(found.order_by(Template.removed_at.desc(), Template.id.desc()), number, limit)


def matching(account_id: int, search: str = "") -> Any:
    """Return what is put away and says something, as a query without an order."""
    found = Template.select().where(
        Template.account == account_id, Template.flow.is_null(), Template.removed_at.is_null(False)
    )
    return found.where(Template.name.contains(search) | Template.subject.contains(search)) if search else found


def many(account_id: int) -> int:
    """Count what is put away."""
    found = fetch_one(
        "SELECT count(*) FROM template WHERE account_id = ? AND flow_id IS NULL AND removed_at IS NOT NULL",
        (account_id,),
    )
    return int(found[0]) if found else 0


def put_away(account_id: int, template_id: int) -> Template:
    """Take a stand-alone template out of the lists; raises NotFound, or Invalid for one of a campaign or a flow."""
    return _put(account_id, template_id, clock.now_ms())


def bring_back(account_id: int, template_id: int) -> Template:
    """Put a template back into the lists; raises NotFound, or Invalid for one of a campaign or a flow."""
    return _put(account_id, template_id, None)


def _put(account_id: int, template_id: int, moment: int | None) -> Template:
    writing()
    template = store.get(account_id, template_id)
    if template.flow_id is not None:
        raise Invalid({"base": ["belongs to a campaign or a flow"]}, reason="in_use")
    template.removed_at = moment
    template.save(only=[Template.removed_at])
    return template


def sent(template_ids: list[int]) -> dict[int, int]:
    """Count the single messages that were made from templates, for those that have some."""
    found = {
        number: fetch_one("SELECT count(*) FROM message WHERE template_id = ?", (number,)) for number in template_ids
    }
    return {number: int(row[0]) for number, row in found.items() if row and row[0]}
