"""Lists that are sorted by name ignore accents and case, as readers of a language with accents expect."""

import pytest

from appliance.core.i18n import fold
from appliance.storage.models.account import _SORTED_AS
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser

NAMES = ["Zora", "Ödön", "anna", "Łucja", "Emil", "Élise", "Otto", "Ágnes", "Lukas", "Østen"]
IN_ORDER = ["Ágnes", "anna", "Élise", "Emil", "Łucja", "Lukas", "Ödön", "Østen", "Otto", "Zora"]
RULE = [{"name": "data.visits", "predicate": "gt", "value": 10}]


@pytest.mark.parametrize("path", ["/contacts", "/lists", "/segments", "/templates", "/campaigns"])
def test_names_are_sorted_without_regard_to_accents(path: str, api: Client, user: ScriptlessBrowser) -> None:
    """`Ödön` stands between `Lukas` and `Otto`, in both directions and on each page of the list."""
    for name in NAMES:
        body: dict[str, object] = {"name": name}
        if path == "/contacts":
            body = {"first_name": name, "email": f"person{NAMES.index(name)}@example.com"}
        elif path == "/segments":
            body["filters"] = RULE
        elif path == "/templates":
            body["subject"] = name
        api.post(path, body).expect(201)
    for order, names in (("name", IN_ORDER), ("-name", IN_ORDER[::-1])):
        page = HtmlPage(user, f"{path}?sort={order}")
        assert [text_of(link) for link in page.all("a.name")] == names


def test_the_index_and_other_lists_sort_alike() -> None:
    """The letters of the index of contacts are those that `fold` returns for other lists."""
    assert {variant: letters for letters, variants in _SORTED_AS.items() for variant in variants} == {
        variant: fold(variant) for variants in _SORTED_AS.values() for variant in variants
    }
