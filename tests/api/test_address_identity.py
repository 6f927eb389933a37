"""Two spellings of an address are one contact if and only if their normal forms are equal, everywhere."""

import itertools
import json
import unicodedata
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.core import addresses
from tests.kit.client import Client
from tests.kit.uploads import import_results, upload, wait_for_import

LOCALS = (
    "straße", "STRAßE", "STRAẞE", "strasse", "Strasse", "ſam", "sam", "SAM", "ﬁn", "fin", "ａnn", "ann", "ANN", "ıl",
    "il", "IL", "İl", "I\u0307l", "i\u0307l", "é", "É", "e\u0301", "E\u0301", "e", "µ", "μ", "Μ", "ς", "σ", "Σ",
    "\u212a", "k",
)  # fmt: skip
DOMAINS = (
    "straße.example", "STRAßE.example", "xn--strae-oqa.example", "XN--STRAE-OQA.Example", "strasse.example",
    "STRASSE.example", "straße\u3002example",
)  # fmt: skip
_numbers = itertools.count()


def unique_spellings() -> list[str]:
    """Return every spelling, with a number that no other test of this module uses."""
    number = next(_numbers)
    return [f"{local}.{number}@example.org" for local in LOCALS] + [f"a.{number}@{domain}" for domain in DOMAINS]


def group_by_id(spellings: list[str], ids: list[Any]) -> set[frozenset[str]]:
    """Return the sets of spellings that have the same id."""
    spellings_by_id: dict[Any, set[str]] = {}
    for spelling, contact_id in zip(spellings, ids, strict=True):
        spellings_by_id.setdefault(contact_id, set()).add(spelling)
    return {frozenset(group) for group in spellings_by_id.values()}


def group_by_normal_form(spellings: list[str]) -> set[frozenset[str]]:
    """Return the sets of spellings that have the same normal form."""
    return group_by_id(spellings, [addresses.parse_email(spelling).key for spelling in spellings])


def ids_matching(api: Client, predicate: str, value: Any) -> set[int]:
    """Return the ids of the contacts that match a filter on the address."""
    leaf = {"name": "email", "predicate": predicate, "value": value}
    return {row["id"] for row in api.post("/segments/count", {"filters": [leaf]}).expect(200)["sample"]}


def test_equal_and_different_spellings() -> None:
    """Only case and Unicode composition make two spellings equal."""
    locals_ = {
        frozenset(spelling.partition(".")[0] for spelling in group)
        for group in group_by_normal_form(unique_spellings())
        if len(group) > 1
    }
    assert {frozenset(group) for group in (
        ("straße", "STRAßE", "STRAẞE"), ("strasse", "Strasse"), ("sam", "SAM"), ("ann", "ANN"), ("il", "IL"),
        ("İl", "I\u0307l", "i\u0307l"), ("é", "É", "e\u0301", "E\u0301"), ("μ", "Μ"), ("\u212a", "k"),
    )} <= locals_  # fmt: skip
    apart = (
        "strasse",
        "straße",
        "ſam",
        "sam",
        "ﬁn",
        "fin",
        "ａnn",
        "ann",
        "ıl",
        "il",
        "İl",
        "é",
        "e",
        "µ",
        "μ",
        "ς",
        "σ",
    )
    assert len({addresses.parse_email(f"{local}@example.org").key for local in apart}) == len(apart)


def test_spellings_in_the_api_and_in_filters(api: Client) -> None:
    """The API creates and finds contacts by normal form: by address, by filter and by suppression."""
    spellings = unique_spellings()
    ids = [api.post("/contacts", {"email": spelling}).json["id"] for spelling in spellings]
    assert group_by_id(spellings, ids) == group_by_normal_form(spellings)
    for spelling, contact_id in zip(spellings, ids, strict=True):
        assert ids_matching(api, "eq", spelling) == {contact_id}, spelling
        assert ids_matching(api, "in", [spelling]) == {contact_id}, spelling
        assert api.get("/contacts/search", q=spelling).expect(200)[0]["id"] == contact_id
    for group in group_by_normal_form(spellings):
        api.post("/suppressions", {"address": min(group)}).expect(201)
    kept = [api.get("/suppressions", address=spelling).expect(200) for spelling in spellings]
    assert group_by_id(spellings, [rows[0]["id"] for rows in kept]) == group_by_normal_form(spellings)
    assert {len(rows) for rows in kept} == {1}


def test_spellings_in_an_import(api: Client) -> None:
    """An import creates as many contacts as the API would, and the API finds them."""
    spellings = unique_spellings()
    lines = "\n".join(json.dumps({"email": spelling}) for spelling in spellings)
    job = wait_for_import(api, upload(api, lines, "people.jsonl"))
    assert job["status"] == "complete"
    results = [row["result"] for row in import_results(api, job["id"])]
    assert results.count("created") == len(group_by_normal_form(spellings))
    again = [api.post("/contacts", {"email": spelling}).expect(200)["id"] for spelling in spellings]
    assert group_by_id(spellings, again) == group_by_normal_form(spellings)


def test_an_erased_address_suppresses_only_itself(api: Client) -> None:
    """The hash of an erased address matches its own spellings, and not a similar address."""
    number = next(_numbers)
    gone, other = f"straße.{number}@example.org", f"strasse.{number}@example.org"
    contact = api.post("/contacts", {"email": gone}).expect(201)
    api.delete(f"/contacts/{contact['id']}", erase="true").expect(200)
    results = {address: [row["reason"] for row in api.get("/suppressions", address=address).expect(200)]
             for address in (gone, gone.upper().replace("SS", "ß"), other)}  # fmt: skip
    assert list(results.values()) == [["erased"], ["erased"], []]


def test_messages_are_found_by_any_spelling(api: Client) -> None:
    """Messages are found by every spelling of their recipient, and not by a similar address."""
    number = next(_numbers)
    mine, other = f"straße.{number}@straße.example", f"strasse.{number}@straße.example"
    sent = {address: api.post("/messages", {"to": address, "subject": "s", "body": "b"}).expect(201)["id"]
            for address in (mine, other)}  # fmt: skip
    for spelling in (mine, f"STRAßE.{number}@XN--STRAE-OQA.EXAMPLE"):
        assert [row["id"] for row in api.get("/messages", to=spelling).expect(200)] == [sent[mine]]
    assert [row["id"] for row in api.get("/messages", to=other).expect(200)] == [sent[other]]


def test_list_and_tag_names_compare_like_addresses(api: Client) -> None:
    """A list or tag with other case is the same one; `ß` and `ss` differ."""
    number = next(_numbers)
    first = api.post("/lists", {"name": f"Straße {number}"}).expect(201)["id"]
    assert api.post("/lists", {"name": f"Strasse {number}"}).expect(201)["id"] != first
    for taken in (f"STRAßE {number}", unicodedata.normalize("NFD", f" straße {number} ")):
        assert api.post("/lists", {"name": taken}).expect(422)["validation_errors"]["name"] == [
            "has already been taken"
        ]
    contact = api.post("/contacts", {"email": f"tags.{number}@example.org", "data": {"tags": ["Straße"]}}).expect(201)
    api.patch(f"/contacts/{contact['id']}", {"data": {"tags": ["STRAßE", "strasse"]}}).expect(200)
    added = [row["data"]["tag"] for row in api.get("/events", event="tag_add", contact_id=contact["id"]).expect(200)]
    assert sorted(added) == ["Straße", "strasse"]
    assert api.get("/events", event="tag_remove", contact_id=contact["id"]).expect(200) == []


_LETTERS = "aAßẞsſSiIıİ\u0307e\u0301éÉµμΜςσΣ\ufb01\uff41K\u212aǆǅ"


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.text(_LETTERS, min_size=1, max_size=4), other=st.text(_LETTERS, min_size=1, max_size=4))
def test_random_spellings(api: Client, first: str, other: str) -> None:
    """Two addresses get one contact if and only if their normal forms are equal, and SQL filters agree."""
    number = next(_numbers)
    try:
        pair = [addresses.parse_email(f"x{text}.{number}@example.org") for text in (first, other)]
    except ValueError:
        return
    ids = [api.post("/contacts", {"email": f"x{text}.{number}@example.org"}).json["id"] for text in (first, other)]
    assert (ids[0] == ids[1]) is (pair[0].key == pair[1].key)
    assert [ids_matching(api, "eq", f"x{text}.{number}@example.org") for text in (first, other)] == [
        {contact_id} for contact_id in ids
    ]
