"""Rate limits over HTTP: their headers, and the order of errors (docs/decisions.md#3 and #4)."""

import http.client
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from tests.kit.client import Client, Response
from tests.kit.server import Server

# Low rate limits: bursts of 6, 12, 5 and 3
SERVER_ENV = {
    "CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "60", "CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "120",
    "CAMPANERO_LIMITS__SENDS_PER_MINUTE": "10", "CAMPANERO_LIMITS__RENDERS_PER_MINUTE": "30",
}  # fmt: skip
LIMITS = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")


@pytest.fixture
def api(server: Server) -> Client:
    """Return a client with a new key, whose token buckets are full."""
    return server.client(server.new_key())


def rate_limit_headers(answer: Response) -> tuple[int, int, int]:
    """Return limit, remaining requests and seconds until the bucket is full."""
    limit, remaining, reset = (int(answer.headers[name]) for name in LIMITS)
    return limit, remaining, reset


def request_until_limited(ask: Callable[[], Response]) -> tuple[list[Response], float]:
    """Repeat a request until 429; return all responses, the 429 as the last, and the seconds that they took."""
    started_at, responses = time.monotonic(), list[Response]()
    while len(responses) < 60 and (not responses or responses[-1].status != 429):
        responses.append(ask())
    return responses, time.monotonic() - started_at


def test_requests_over_the_limit_are_rejected(api: Client) -> None:
    """After a burst of six, and one for each second, comes a 429 with Retry-After, after which a request succeeds."""
    numbers = count()
    responses, seconds = request_until_limited(lambda: api.post("/lists", {"name": f"Limited {next(numbers)}"}))
    error = responses.pop()
    assert {response.status for response in responses} == {201} and 6 <= len(responses) <= 7 + seconds
    assert (error.status, error.json["code"], error.headers["Retry-After"]) == (429, "rate_limited", "1")
    assert rate_limit_headers(error)[:2] == (60, 0) and rate_limit_headers(responses[0]) == (60, 5, 1)
    time.sleep(int(error.headers["Retry-After"]))
    assert int(api.get("/lists").headers["X-Total-Count"]) == len(responses)


def test_the_429_names_the_limit(api: Client) -> None:
    """The error has the reason and the number of the limit."""
    responses, _ = request_until_limited(lambda: api.get("/lists"))
    error = responses[-1].json
    assert (error["reason"], error["limit"]) == ("burst", 6)
    assert error["message"] == "At most 6 of these requests are allowed at once."


def test_request_classes_have_separate_buckets(api: Client) -> None:
    """Messages, sends, renderings and other requests have different limits."""
    number = api.post("/templates", {"name": "Hello", "subject": "Hi", "body": "Hello"}).expect(201)["id"]
    assert rate_limit_headers(api.post("/events", {"event": "order_paid"}))[0] == 120
    assert rate_limit_headers(api.post("/events/batch", {"events": [{"event": "order_paid"}] * 50}))[0] == 120
    assert rate_limit_headers(api.post("/messages", {}))[0] == 120
    for path in ("/templates/preview", "/segments/count", "/flows/99/simulate"):
        assert rate_limit_headers(api.post(path, {}))[0] == 30
    for path in (f"/templates/{number}/send_test", "/campaigns/99/send", "/flows/99/activate"):
        assert rate_limit_headers(api.post(path, {}))[0] == 10
    assert rate_limit_headers(api.get("/lists"))[0] == 60 and rate_limit_headers(api.get("/lists"))[1] >= 3


def test_rate_limit_headers_of_errors(server: Server, api: Client) -> None:
    """Error responses have the headers too; responses without a credential do not."""
    key = {"Authorization": f"Bearer {api.key}"}
    typed = key | {"Content-Type": "application/json"}
    for method, path, body, headers, status in (
        ("GET", "/v1/my/lists/0", None, key, 404), ("GET", "/v1/my/lists?no=1", None, key, 422),
        ("POST", "/v1/my/lists", b"x", key, 415), ("POST", "/v1/my/lists", b"[]", typed, 400),
        ("POST", "/v1/my/lists", b'"' + b"x" * 2_200_000 + b'"', typed, 413),
    ):  # fmt: skip
        response = api.request(method, path, body, headers)
        assert (response.status, rate_limit_headers(response)[0]) == (status, 60)
    narrow = server.client(server.new_key("narrow", "--scope", "flows:read"))
    assert (narrow.get("/lists").status, rate_limit_headers(narrow.get("/lists"))[0]) == (403, 60)
    for path in ("/v1/my/lists", "/v1/my/nothing", "/healthz"):
        response = api.request("GET", path)
        assert not set(LIMITS) & set(response.headers), path


def test_order_of_errors(server: Server) -> None:
    """Path, method, credential, rate, scope, size, type, JSON, id: the first error is returned."""
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
    # The rate is checked before the scope: after six 403 responses comes a 429
    responses, _ = request_until_limited(answer_to)
    assert [response.status for response in responses[:6]] == [403] * 6 and responses[-1].status == 429
    wide = server.new_key()
    assert ask(key=wide) == 413
    typed = "application/json"
    for body, kind, status in ((b"x", "text/plain", 415), (b"x", typed, 400), (b"{}", typed, 404)):
        headers = {"Content-Type": kind, "Authorization": f"Bearer {wide}"}
        assert api.request("POST", f"{bulk}?no=1", body, headers).status == status


def test_the_limit_holds_for_parallel_requests(server: Server) -> None:
    """Parallel requests cannot exceed the rate (T22)."""
    key, started_at = server.new_key(), time.monotonic()
    with ThreadPoolExecutor(24) as crowd:
        codes = list(crowd.map(lambda _: server.client(key).get("/lists").status, range(48)))
    assert 6 <= codes.count(200) <= 7 + time.monotonic() - started_at and codes.count(200) + codes.count(429) == 48


def test_invalid_keys_use_no_bucket(server: Server, api: Client) -> None:
    """Requests with an invalid key are 401, and take nothing from the bucket of a valid one."""
    strange = server.client("camp_live_" + "x" * 36)
    assert {strange.get("/lists").status for _ in range(20)} == {401}
    assert rate_limit_headers(api.get("/lists"))[1] == 5


def test_healthz_writes_at_most_once_a_second(server: Server) -> None:
    """Frequent requests to `/healthz` cause at most one write a second."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    log = server.data / "campanero.db-wal"

    def written() -> tuple[int, int]:
        result = log.stat()
        return result.st_size, result.st_mtime_ns

    changes, before, started_at = 0, written(), time.monotonic()
    for _ in range(100):
        link.request("GET", "/healthz")
        response = link.getresponse()
        assert (response.status, response.read()) == (200, b'{"status":"ok"}')
        changes, before = changes + (written() != before), written()
    link.close()
    assert changes <= 3 + time.monotonic() - started_at
