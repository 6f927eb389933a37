"""Hostile values in filters and searches: 200 or 422, quickly, and never contacts of another account (T11)."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.conftest import FreshServer
from tests.kit.audience_data import write_audience
from tests.kit.client import Client, Response
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout

MANY, SOON = 200_000, extend_timeout(1)
UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0"}
WORDS = [
    "' OR 1=1--", '" OR 1=1--', 'a" OR b*', "NEAR(", "NEAR(a b, 3)", "*", "^a", "a:b", "%", "_", "\\", "x') --",
    "'; DROP TABLE contact;--", "$[0]", "{}", "{0}", ":f0", "?", "ﷺ" * 300, "\u202e", "0" * 999, "data.x') --",
]  # fmt: skip
VALUES = [
    *WORDS, [], {}, ["a"], {"a": 1}, [[]], [{"a": [1]}], None, True, -1, 2**63, 2**70, 1e308, "2026-01-01",
    "0001-01-01", "9999-12-31", "9999-12-31T23:59:59Z", ["0001-01-01", "9999-12-31"], [1, "a"],
]  # fmt: skip
FILTERS = ("tag", "source", "list_id", "segment_id", "subscribed_email", "created_after", "updated_before", "page")


class Attacker:
    """Sends hostile requests and checks each response."""

    def __init__(self, api: Client, most: int, soon: float) -> None:
        self.api, self.most, self.soon = api, most, soon
        self.slowest = 0.0

    def check(self, answer: Response, asked: Any, number: int | None = None) -> Response:
        """Check that the status is 200 or 422 and that no more contacts are found than exist."""
        assert answer.status in (200, 422), (asked, answer.body)
        if answer.status == 200 and number is not None:
            assert number <= self.most, asked
        return answer

    def measure(self, asked: Any, ask: Any) -> Response:
        """Send a request and check that the response is not too slow."""
        begin = time.monotonic()
        response: Response = ask()
        took = time.monotonic() - begin
        assert took < self.soon, (asked, took)
        self.slowest = max(self.slowest, took)
        return response

    def count_filters(self, filters: Any) -> Response:
        """Count the contacts that match some filters."""
        response = self.measure(filters, lambda: self.api.post("/segments/count", {"filters": filters}))
        return self.check(response, filters, response.json["count"] if response.status == 200 else None)

    def list_contacts(self, path: str, **query: Any) -> Response:
        """Request a page of contacts."""
        response = self.measure(query, lambda: self.api.get(path, **query))
        return self.check(response, query, int(response.headers.get("X-Total-Count", "0")))


def send_hostile_values(attacker: Attacker, step: int = 1) -> None:
    """Send every hostile value wherever a filter, search or list accepts one; every `step`-th to each field."""
    spec = attacker.api.get("/segments/spec").expect(200)
    for number, field in enumerate(spec["fields"]):
        predicates = [predicate["predicate"] for predicate in spec["types"][field["type"]]]
        for at, value in list(enumerate(VALUES))[number % step :: step]:
            name = field["name"].replace("<path>", "x")
            attacker.count_filters([{"name": name, "predicate": predicates[at % len(predicates)], "value": value}])
    for number, word in enumerate(WORDS):
        for name in (word, f"data.{word}", f"contact_data.x.{word}", f"contact_{word}"):
            attacker.count_filters([{"name": name, "predicate": "eq", "value": "y"}])
        assert attacker.count_filters([{"name": "email", "predicate": word, "value": "y"}]).status == 422
        value = {"event": word, "where": [{"name": f"event.{word}", "predicate": "cont", "value": word}]}
        attacker.count_filters([{"name": "event", "predicate": "performed", "value": value}])
        attacker.list_contacts("/contacts/search", q=word)
        attacker.list_contacts("/contacts", search=word)
        for name in FILTERS[number % step :: step]:
            attacker.list_contacts("/contacts", **{name: word})
        for name in ("sort", "order", "order_by"):
            assert attacker.list_contacts("/contacts", **{name: word}).status == 422


def test_hostile_values_find_no_other_account(fresh_server: FreshServer, full: bool) -> None:
    """Every request is a 200 or 422, and finds no contact of another account."""
    server = fresh_server(env=UNLIMITED)
    mine = server.client(validate=False, keep_alive=True)
    mine.post("/contacts", {"email": "mine@example.org", "data": {"x": "y", "tags": ["vip"]}}).expect(201)
    add_second_account(server.data, 40)
    attacker = Attacker(mine, most=1, soon=5.0)
    send_hostile_values(attacker, 1 if full else 3)
    assert mine.get("/contacts").headers["X-Total-Count"] == "1"


def add_second_account(data: Path, number: int) -> None:
    """Insert contacts of a second account into the tables, as copies of the first contact."""
    database = apsw.Connection(str(data / "campanero.db"))
    database.setbusytimeout(10_000)
    database.execute("BEGIN IMMEDIATE")
    columns = [row[1] for row in database.execute("PRAGMA table_info(account)").fetchall() if row[1] != "id"]
    database.execute(
        f"INSERT INTO account (id, {', '.join(columns)}) SELECT 77, {', '.join(columns)} FROM account LIMIT 1"
    )
    copied = [row[1] for row in database.execute("PRAGMA table_info(contact)").fetchall()]
    for at in range(number):
        own = {"id": str(1_000 + at), "account_id": "77", "uuid": f"'stranger{at}'", "first_name": "'a'"}
        values = ", ".join(own.get(name, name) for name in copied)
        database.execute(f"INSERT INTO contact ({', '.join(copied)}) SELECT {values} FROM contact WHERE id = 1")
        database.execute(
            "INSERT INTO contact_search (rowid, names, email, phone) VALUES (?, 'a b x', 'a', '')", (1_000 + at,)
        )
    database.execute("COMMIT")
    database.close()


def nested_groups(levels: int) -> str:
    """Return a filter with nested groups as JSON."""
    return '[{"name":"group","predicate":"all","value":' * levels + "[]" + "}]" * levels


@pytest.mark.parametrize("levels", [6, 400, 10_000])
def test_deeply_nested_filters_are_rejected(api: Client, levels: int) -> None:
    """A filter nested too deeply is rejected quickly."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api.key}"}
    begin = time.monotonic()
    for path in ("/segments/count", "/segments"):
        body = f'{{"name":"Deep","filters":{nested_groups(levels)}}}'
        response = api.request("POST", f"/v1/my{path}", body.encode(), headers)
        assert response.status in (400, 422), response.body
    assert time.monotonic() - begin < extend_timeout(2)
    assert api.get("/contacts").status == 200


@pytest.fixture
def large_server(full: bool, tmp_path: Path) -> Iterator[Server]:
    """Yield a server with two hundred thousand contacts."""
    if not full:
        pytest.skip("two hundred thousand people take minutes: only with --full")
    server = Server(data=tmp_path / "data", env=UNLIMITED).set_up()
    write_audience(server.data / "campanero.db", MANY, say=lambda words: None)
    with server:
        yield server
        server.stop()


def test_hostile_values_are_fast_on_large_data(large_server: Server) -> None:
    """With two hundred thousand contacts each request takes less than a second."""
    attacker = Attacker(large_server.client(validate=False, keep_alive=True), most=MANY, soon=SOON)
    send_hostile_values(attacker)
    print(f"slowest {attacker.slowest * 1000:.0f} ms")
