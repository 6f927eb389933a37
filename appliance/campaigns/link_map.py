"""The message of a campaign with its links marked in place: where people clicked, drawn on what they saw."""

import re
from html import escape
from typing import Any

from appliance.campaigns.figures import LinkFigures
from appliance.content import brand as brands
from appliance.content.designs import links as numbered
from appliance.content.designs import merge
from appliance.sending.messages import sample_render, sources, texts, values
from appliance.storage.models import Account, Campaign

_CLOSE = re.compile(r"</a\s*>", re.IGNORECASE)
# Seen on any colour that a mail may have: ink with a light rim, and the other way round where nobody clicked
_MARK = (
    '<span class="campanero-mark" style="display:inline-block;margin:0 0 0 4px;padding:0 6px;border-radius:9px;'
    "font:600 11px/18px ui-sans-serif,system-ui,sans-serif;letter-spacing:0;text-decoration:none;text-transform:none;"
    'white-space:nowrap;vertical-align:middle;{}">{}&#160;&#183;&#160;{}</span>'
)
_WARM = "background:#1b1f27;color:#ffffff;border:1px solid #ffffff"
_COLD = "background:#ffffff;color:#5c6068;border:1px solid #8a8d93"


def html(campaign: Campaign, links: list[LinkFigures]) -> str:
    """Return what a campaign said, invented values filled in, with number and people behind each link.

    Raises MergeError if it cannot be shown.
    """
    told = {one.number: one for one in links}
    if campaign.channel == "sms":
        return _text(campaign, told)
    content = sources.compile_source(campaign.id).content
    marked = merge.compile_template(_marked(content.html.source, told), "html")
    return marked.render(_values(campaign) | values.shown(campaign.account_id, None, content.conditions))


def _marked(source: str, told: dict[int, LinkFigures]) -> str:
    """Put a mark at the end of each link of a template, in the order in which they were numbered."""
    parts: list[str] = []
    position = 0
    places = numbered.in_html(source)
    for number, place in enumerate(places, 1):
        until = places[number].start if number < len(places) else len(source)
        end = _CLOSE.search(source, place.end, until)
        if number in told and end is not None:
            parts += (source[position : end.start()], _mark(told[number]))
            position = end.start()
    return "".join((*parts, source[position:]))


def _text(campaign: Campaign, told: dict[int, LinkFigures]) -> str:
    body = campaign.template.body or ""
    said = sample_render.text(campaign.account_id, body, _values(campaign), True, False, campaign.name).body
    page = texts.page(said)
    for one in told.values():
        page = page.replace(escape(one.url), f"{escape(one.url)}{_mark(one)}", 1)
    return page


def _mark(one: LinkFigures) -> str:
    if not one.counted:
        return ""
    return _MARK.format(
        _WARM if one.clicked.count else _COLD, one.number, f"{one.clicked.count:,}".replace(",", "\u202f")
    )


def _values(campaign: Campaign) -> dict[str, Any]:
    account = Account.get_by_id(campaign.account_id)
    named = {"first_name": "Anna", "last_name": "Example"}
    person = values.of_contact(None, "anna@example.org")
    return {
        **person, **named, "contact": {**person["contact"], **named},
        **values.of_account(account, brands.get(account.id)), "campaign": {"name": campaign.name},
        "unsubscribe_url": "#", "preferences_url": "#", "view_url": "#",
    }  # fmt: skip
