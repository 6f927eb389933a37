"""Limits over the wire: rates with their headers, and the order of refusals (docs/decisions.md#3 and #4)."""

import http.client
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from tests.kit.client import Client, Response
from tests.kit.server import Server

LIMITS = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose rates are low: bursts of 6, 12, 5 and 3."""
    env = {
        "CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "60", "CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "120",
        "CAMPANERO_LIMITS__SENDS_PER_MINUTE": "10", "CAMPANERO_LIMITS__RENDERS_PER_MINUTE": "30",
    }  # fmt: skip
    with Server(env=env).set_up() as running:
        yield running
        running.stop()


@pytest.fixture
def api(server: Server) -> Client:
    """A client with a key of its own, so with full buckets."""
    return server.client(server.new_key())


def told(answer: Response) -> tuple[int, int, int]:
    """Return limit, remaining and seconds until full, as the headers tell them."""
    limit, remaining, reset = (int(answer.headers[name]) for name in LIMITS)
    return limit, remaining, reset


def until_refused(ask: Callable[[], Response]) -> tuple[list[Response], float]:
    """Ask until it is too much; returns all answers, the refusal as the last, and the seconds that they took."""
    begun, answers = time.monotonic(), list[Response]()
    while len(answers) < 60 and (not answers or answers[-1].status != 429):
        answers.append(ask())
    return answers, time.monotonic() - begun


def test_over_the_rate_nothing_is_done(api: Client) -> None:
    """After a burst of six, and one for each second, comes 429, which says when to come back; then one is taken."""
    numbers = count()
    answers, seconds = until_refused(lambda: api.post("/lists", {"name": f"Limited {next(numbers)}"}))
    refused = answers.pop()
    assert {answer.status for answer in answers} == {201} and 6 <= len(answers) <= 7 + seconds
    assert (refused.status, refused.json["code"], refused.headers["Retry-After"]) == (429, "rate_limited", "1")
    assert told(refused)[:2] == (60, 0) and told(answers[0]) == (60, 5, 1)
    time.sleep(int(refused.headers["Retry-After"]))
    assert int(api.get("/lists").headers["X-Total-Count"]) == len(answers)


def test_a_refusal_says_which_limit_was_reached(api: Client) -> None:
    """At first it is what may come at once; whoever goes on without pause reaches what may come in a minute."""
    answers, _ = until_refused(lambda: api.get("/lists"))
    refused = answers[-1].json
    assert (refused["reason"], refused["limit"]) == ("burst", 6)
    assert refused["message"] == "At most 6 of these requests are allowed at once."


def test_each_class_has_its_own_bucket(api: Client) -> None:
    """What has a class of its own takes nothing out of the others' buckets."""
    number = api.post("/templates", {"name": "Hello", "subject": "Hi", "body": "Hello"}).expect(201)["id"]
    assert told(api.post("/events", {"event": "order_paid"}))[0] == 120
    assert told(api.post("/events/batch", {"events": [{"event": "order_paid"}] * 50}))[0] == 120
    assert told(api.post("/messages", {}))[0] == 120
    for path in ("/templates/preview", "/segments/count", "/flows/99/simulate"):
        assert told(api.post(path, {}))[0] == 30
    for path in (f"/templates/{number}/send_test", "/campaigns/99/send", "/flows/99/activate"):
        assert told(api.post(path, {}))[0] == 10
    assert told(api.get("/lists"))[0] == 60 and told(api.get("/lists"))[1] >= 3


def test_every_answer_to_a_credential_tells_the_level(server: Server, api: Client) -> None:
    """Refusals tell it too; who has no credential is told nothing."""
    key = {"Authorization": f"Bearer {api.key}"}
    typed = key | {"Content-Type": "application/json"}
    for method, path, body, headers, status in (
        ("GET", "/v1/my/lists/0", None, key, 404), ("GET", "/v1/my/lists?no=1", None, key, 422),
        ("POST", "/v1/my/lists", b"x", key, 415), ("POST", "/v1/my/lists", b"[]", typed, 400),
        ("POST", "/v1/my/lists", b'"' + b"x" * 2_200_000 + b'"', typed, 413),
    ):  # fmt: skip
        answer = api.request(method, path, body, headers)
        assert (answer.status, told(answer)[0]) == (status, 60)
    narrow = server.client(server.new_key("narrow", "--scope", "flows:read"))
    assert (narrow.get("/lists").status, told(narrow.get("/lists"))[0]) == (403, 60)
    for path in ("/v1/my/lists", "/v1/my/nothing", "/healthz"):
        answer = api.request("GET", path)
        assert not set(LIMITS) & set(answer.headers), path


def test_the_order_of_refusals(server: Server) -> None:
    """Path, method, credential, rate, scope, size, type, JSON, id: what comes first is what is said."""
    api = server.client(server.new_key("narrow", "--scope", "flows:read"))
    too_large = b"x" * 2_200_000

    bulk = "/v1/my/lists/0/contacts/bulk"

    def answer_to(method: str = "POST", path: str = bulk, key: str | None = api.key) -> Response:
        headers = {"Content-Type": "text/plain"} | ({"Authorization": f"Bearer {key}"} if key else {})
        return api.request(method, path, too_large, headers)

    def ask(method: str = "POST", path: str = bulk, key: str | None = api.key) -> int:
        return answer_to(method, path, key).status

    assert ask(path="/v1/my/nothing") == 404
    assert ask("PUT", key=None) == 405
    assert ask(key=None) == ask(key="camp_live_wrong") == 401
    # The right scope comes after the rate: six are refused for what they are, the others for how many there were
    answers, _ = until_refused(answer_to)
    assert [answer.status for answer in answers[:6]] == [403] * 6 and answers[-1].status == 429
    wide = server.new_key()
    assert ask(key=wide) == 413
    typed = "application/json"
    for body, kind, status in ((b"x", "text/plain", 415), (b"x", typed, 400), (b"{}", typed, 404)):
        headers = {"Content-Type": kind, "Authorization": f"Bearer {wide}"}
        assert api.request("POST", f"{bulk}?no=1", body, headers).status == status


def test_many_at_once_get_no_more(server: Server) -> None:
    """A rate holds against requests that come at the same moment (T22)."""
    key, begun = server.new_key(), time.monotonic()
    with ThreadPoolExecutor(24) as crowd:
        codes = list(crowd.map(lambda _: server.client(key).get("/lists").status, range(48)))
    assert 6 <= codes.count(200) <= 7 + time.monotonic() - begun and codes.count(200) + codes.count(429) == 48


def test_who_is_not_known_fills_nobodys_bucket(server: Server, api: Client) -> None:
    """Wrong keys are refused as such, however many; they take nothing from anybody."""
    strange = server.client("camp_live_" + "x" * 36)
    assert {strange.get("/lists").status for _ in range(20)} == {401}
    assert told(api.get("/lists"))[1] == 5


def test_health_is_written_at_most_once_a_second(server: Server) -> None:
    """Whoever asks for `/healthz` without pause lets the service write no more for it."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    log = server.data / "campanero.db-wal"

    def written() -> tuple[int, int]:
        found = log.stat()
        return found.st_size, found.st_mtime_ns

    changes, before, begun = 0, written(), time.monotonic()
    for _ in range(100):
        link.request("GET", "/healthz")
        answer = link.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')
        changes, before = changes + (written() != before), written()
    link.close()
    assert changes <= 3 + time.monotonic() - begun
