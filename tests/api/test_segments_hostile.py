"""Hostile words in filters, searches and lists: 200 with the right people or 422, soon, and nobody of others (T11)."""

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


class Asker:
    """Asks hostile things of a server and holds each answer to the promise."""

    def __init__(self, api: Client, most: int, soon: float) -> None:
        self.api, self.most, self.soon = api, most, soon
        self.slowest = 0.0

    def fine(self, answer: Response, asked: Any, number: int | None = None) -> Response:
        """Check an answer: it is one of two statuses, and finds no more people than there are."""
        assert answer.status in (200, 422), (asked, answer.body)
        if answer.status == 200 and number is not None:
            assert number <= self.most, asked
        return answer

    def timed(self, asked: Any, ask: Any) -> Response:
        """Ask, and check that it did not hang."""
        begin = time.monotonic()
        answer: Response = ask()
        took = time.monotonic() - begin
        assert took < self.soon, (asked, took)
        self.slowest = max(self.slowest, took)
        return answer

    def count(self, filters: Any) -> Response:
        """Count whom some filters find."""
        answer = self.timed(filters, lambda: self.api.post("/segments/count", {"filters": filters}))
        return self.fine(answer, filters, answer.json["count"] if answer.status == 200 else None)

    def listed(self, path: str, **query: Any) -> Response:
        """Ask for a page of contacts."""
        answer = self.timed(query, lambda: self.api.get(path, **query))
        return self.fine(answer, query, int(answer.headers.get("X-Total-Count", "0")))


def attack(asker: Asker) -> None:
    """Put every hostile word and value wherever a filter, a search or a list takes one."""
    spec = asker.api.get("/segments/spec").expect(200)
    for field in spec["fields"]:
        predicates = [one["predicate"] for one in spec["types"][field["type"]]]
        for at, value in enumerate(VALUES):
            name = field["name"].replace("<path>", "x")
            asker.count([{"name": name, "predicate": predicates[at % len(predicates)], "value": value}])
    for word in WORDS:
        for name in (word, f"data.{word}", f"contact_data.x.{word}", f"contact_{word}"):
            asker.count([{"name": name, "predicate": "eq", "value": "y"}])
        assert asker.count([{"name": "email", "predicate": word, "value": "y"}]).status == 422
        value = {"event": word, "where": [{"name": f"event.{word}", "predicate": "cont", "value": word}]}
        asker.count([{"name": "event", "predicate": "performed", "value": value}])
        asker.listed("/contacts/search", q=word)
        asker.listed("/contacts", search=word)
        for name in FILTERS:
            asker.listed("/contacts", **{name: word})
        for name in ("sort", "order", "order_by"):
            assert asker.listed("/contacts", **{name: word}).status == 422


def test_hostile_words_find_nobody_of_others(fresh_server: FreshServer) -> None:
    """Whatever stands in a name, a path, a value or a query: 200 or 422, and never another account's people."""
    server = fresh_server(env=UNLIMITED)
    mine = server.client(validate=False, keep_alive=True)
    mine.post("/contacts", {"email": "mine@example.org", "data": {"x": "y", "tags": ["vip"]}}).expect(201)
    strangers(server.data, 40)
    asker = Asker(mine, most=1, soon=5.0)
    attack(asker)
    assert mine.get("/contacts").headers["X-Total-Count"] == "1"


def strangers(data: Path, number: int) -> None:
    """Put people of a second account beside the first, straight into the tables: lists, events, words and all."""
    here = apsw.Connection(str(data / "campanero.db"))
    here.setbusytimeout(10_000)
    here.execute("BEGIN IMMEDIATE")
    columns = [row[1] for row in here.execute("PRAGMA table_info(account)").fetchall() if row[1] != "id"]
    here.execute(f"INSERT INTO account (id, {', '.join(columns)}) SELECT 77, {', '.join(columns)} FROM account LIMIT 1")
    copied = [row[1] for row in here.execute("PRAGMA table_info(contact)").fetchall()]
    for at in range(number):
        own = {"id": str(1_000 + at), "account_id": "77", "uuid": f"'stranger{at}'", "first_name": "'a'"}
        values = ", ".join(own.get(name, name) for name in copied)
        here.execute(f"INSERT INTO contact ({', '.join(copied)}) SELECT {values} FROM contact WHERE id = 1")
        here.execute(
            "INSERT INTO contact_search (rowid, names, email, phone) VALUES (?, 'a b x', 'a', '')", (1_000 + at,)
        )
    here.execute("COMMIT")
    here.close()


def nested(levels: int) -> str:
    """Write a filter of so many groups inside each other, as JSON."""
    return '[{"name":"group","predicate":"all","value":' * levels + "[]" + "}]" * levels


@pytest.mark.parametrize("levels", [6, 400, 10_000])
def test_deep_filters_are_refused(api: Client, levels: int) -> None:
    """However deep groups are nested, the answer is a refusal, and soon."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {api.key}"}
    begin = time.monotonic()
    for path in ("/segments/count", "/segments"):
        body = f'{{"name":"Deep","filters":{nested(levels)}}}'
        answer = api.request("POST", f"/v1/my{path}", body.encode(), headers)
        assert answer.status in (400, 422), answer.body
    assert time.monotonic() - begin < extend_timeout(2)
    assert api.get("/contacts").status == 200


@pytest.fixture
def large(full: bool, tmp_path: Path) -> Iterator[Server]:
    """A server with two hundred thousand people and one stranger."""
    if not full:
        pytest.skip("two hundred thousand people take minutes: only with --full")
    server = Server(data=tmp_path / "data", env=UNLIMITED).set_up()
    write_audience(server.data / "campanero.db", MANY, say=lambda words: None)
    with server:
        yield server
        server.stop()


def test_hostile_words_are_answered_soon(large: Server) -> None:
    """On two hundred thousand people each hostile question is answered within a second."""
    asker = Asker(large.client(validate=False, keep_alive=True), most=MANY, soon=SOON)
    attack(asker)
    print(f"slowest {asker.slowest * 1000:.0f} ms")
