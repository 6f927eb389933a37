"""Lists that are sorted by name ignore accents and case, as readers of a language with accents expect."""

import sqlite3

import pytest

from appliance.core.i18n import fold
from appliance.storage.models.account import _SORTED_AS, NAME_ORDER
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
    """Each letter of the index of contacts counts as the first one that `fold` returns for it in other lists."""
    assert {variant: letters for letters, variants in _SORTED_AS.items() for variant in variants} == {
        variant: fold(variant)[0] for variants in _SORTED_AS.values() for variant in variants
    }


def test_a_plain_sqlite_sorts_contacts() -> None:
    """The SQLite of the system, which has none of our functions, reads the expression of the index, and sorts by it."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE contact (first_name, last_name)")
    people = [("Ödön", "Kiss"), ("Otto", None), (None, None), ("Anna", "Öz"), (" anna ", "Oz"), ("Иван", "Ärmel")]
    database.executemany("INSERT INTO contact VALUES (?, ?)", people)
    ordered = database.execute(f"SELECT rowid FROM contact ORDER BY {NAME_ORDER} COLLATE NOCASE, rowid").fetchall()
    database.close()
    assert [row[0] for row in ordered] == [5, 4, 1, 2, 6, 3]
