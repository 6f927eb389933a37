"""Preflight counts of contacts without a value for a merge tag, compared with rendering."""

from typing import Any

from appliance.audience.contacts import store as contacts
from appliance.campaigns import audience, preflight
from appliance.content.designs import merge
from appliance.sending.messages import merge_tags
from appliance.storage.models import Contact
from tests.domain.home import Home

PEOPLE: list[dict[str, Any]] = [
    {"first_name": "Ann", "data": {"city": "Rome", "words": ["a"], "n": 0, "deep": {"er": "x"}, "list": ["q"]}},
    {"first_name": "", "last_name": "B", "data": {"city": "", "words": [], "n": False, "deep": {"er": None}}},
    {"country_code": "PT", "data": {"city": None, "deep": "text", "list": []}},
    {"data": {}},
    {"first_name": " ", "phone": "+351210000000", "data": {"city": False, "words": {}, "n": 7}},
]
NAMES = (
    "first_name", "contact.first_name", "contact.last_name", "email", "contact.phone", "contact.country_code",
    "contact.data.city", "contact.data.words", "contact.data.n", "contact.data.deep.er", "contact.data.nothing",
)  # fmt: skip


def test_missing_values_match_rendered_defaults(home: Home) -> None:
    """Each count is the number of recipients for whom the rendered message shows the merge tag's default."""
    recipients = [home.contact(f"p{number}@example.org", **fields) for number, fields in enumerate(PEOPLE)]
    home.contact("elsewhere@example.org")
    campaign = home.campaign(home.list_of(*(recipient.id for recipient in recipients)).id)

    counts = preflight.count_missing_values(
        audience.build_audience(campaign), [*NAMES, "data.code", "brand.company_name", 'contact.data."x']
    )

    expected = dict.fromkeys(NAMES, 0)
    for recipient in recipients:
        contact = contacts.get(home.account_id, recipient.id)
        for name in NAMES:
            rendered = merge.compile_template(f"{{{{ {name} | default: 'LACKS' }}}}", "text").render(
                merge_tags.get_contact_values(contact, None)
            )
            expected[name] += rendered == "LACKS"
    assert counts == expected
    assert Contact.select().count() == len(PEOPLE) + 1


def test_merge_tags_without_contact_data_are_not_counted(home: Home) -> None:
    """Without merge tags about contacts the result is empty."""
    campaign = home.campaign(home.list_of(home.contact("a@example.org").id).id)
    assert preflight.count_missing_values(audience.build_audience(campaign), ["brand.company_name"]) == {}
