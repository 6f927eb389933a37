"""How many people lack what a message says about them, against the message itself."""

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


def test_who_is_counted_is_who_would_be_shown_a_default(home: Home) -> None:
    """Each number is that of the people for whom the message shows its default."""
    people = [home.contact(f"p{number}@example.org", **one) for number, one in enumerate(PEOPLE)]
    home.contact("elsewhere@example.org")
    campaign = home.campaign(home.list_of(*(one.id for one in people)).id)

    found = preflight.count_missing_values(
        audience.build_audience(campaign), [*NAMES, "data.code", "brand.company_name", 'contact.data."x']
    )

    said = dict.fromkeys(NAMES, 0)
    for one in people:
        contact = contacts.get(home.account_id, one.id)
        for name in NAMES:
            shown = merge.compile_template(f"{{{{ {name} | default: 'LACKS' }}}}", "text").render(
                merge_tags.get_contact_values(contact, None)
            )
            said[name] += shown == "LACKS"
    assert found == said
    assert Contact.select().count() == len(PEOPLE) + 1


def test_a_message_that_says_nothing_about_people_asks_nothing(home: Home) -> None:
    """Without variables about contacts there is nothing to count."""
    campaign = home.campaign(home.list_of(home.contact("a@example.org").id).id)
    assert preflight.count_missing_values(audience.build_audience(campaign), ["brand.company_name"]) == {}
