"""The transport of the Python client: retries, errors, files, pages and the API key, against a scripted server."""

import asyncio
import copy
import io
import pickle
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from campanero_client import AsyncCampanero, Campanero, errors
from campanero_client._requests import api_error, parse_retry_after
from tests.clients.scripted_server import Reply, ScriptedServer

BUSY = Reply(429, {"code": "rate_limited", "message": "Too many."}, {"Retry-After": "0"})
UNAVAILABLE = Reply(503, {"code": "unavailable", "message": "Shutting down."}, {"Retry-After": "0"})
LOST, DONE = Reply(0), Reply(200, {"id": 1})


def test_a_lost_post_that_the_service_carries_out_once_is_repeated_with_the_same_key() -> None:
    """`POST /messages` has an Idempotency-Key that stays the same; a key in the body is that of the header."""
    with ScriptedServer(LOST, DONE) as server, Campanero(server.url, "key") as client:
        assert client.messages.create(subject="Hi")["id"] == 1
        client.messages.create(subject="Hi", idempotency_key="order-7")
        client.campaigns.send(3, idempotency_key="monday")
    keys = [arrival.headers["idempotency-key"] for arrival in server.arrivals]
    assert keys[0] == keys[1] and len(keys[0]) == 36 and keys[2:] == ["order-7", "monday"]


@pytest.mark.parametrize("reply", [LOST, Reply(503, b"proxy"), Reply(502, b"")])
def test_a_post_that_may_have_been_carried_out_is_not_repeated(reply: Reply) -> None:
    """A contact whose response was lost may be there, so the caller decides."""
    with (
        ScriptedServer(reply, DONE) as server,
        Campanero(server.url, "key") as client,
        pytest.raises(errors.CampaneroError),
    ):
        client.contacts.create(email="a@example.org")
    assert [arrival.headers.get("idempotency-key") for arrival in server.arrivals] == [None]


def test_requests_that_were_not_carried_out_are_repeated_after_the_time_asked_for() -> None:
    """429 and 503 of the service; 502 and lost connections only if a repetition has no further effect."""
    slow = BUSY._replace(headers={"Retry-After": "1"})
    with ScriptedServer(slow, UNAVAILABLE, DONE) as server, Campanero(server.url) as client:
        started = time.monotonic()
        client.contacts.create(email="a@example.org")
        assert time.monotonic() - started >= 1
    with ScriptedServer(LOST, Reply(502, b"bad gateway"), DONE) as server, Campanero(server.url) as client:
        assert client.contacts.get(1)["id"] == 1
    assert len(server.arrivals) == 3


def test_hostile_responses_are_errors_of_the_client() -> None:
    """A date beyond all calendars counts as none, and JSON that is nested too deeply as no JSON."""
    deep = b"[" * 200_000
    year = {"Retry-After": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}
    replies = (BUSY._replace(headers=year), Reply(403, deep), Reply(200, deep))
    with ScriptedServer(*replies) as server, Campanero(server.url, max_retries=0) as client:
        with pytest.raises(errors.RateLimited) as limited:
            client.contacts.get(1)
        assert limited.value.retry_after is None
        with pytest.raises(errors.CampaneroError):
            client.contacts.get(1)
        with pytest.raises(ValueError, match="too deeply"):
            client.contacts.get(1)


def test_retries_are_bounded_in_number_and_time() -> None:
    """The error of the last attempt is raised; nobody waits longer than `max_retry_seconds`."""
    with ScriptedServer(BUSY) as server, Campanero(server.url, max_retries=2) as client:
        with pytest.raises(errors.RateLimited) as limited:
            client.contacts.get(1)
        assert (len(server.arrivals), limited.value.retry_after) == (3, 0)
    hour = BUSY._replace(headers={"Retry-After": "3600"})
    with ScriptedServer(hour) as server, Campanero(server.url) as client, pytest.raises(errors.RateLimited):
        client.contacts.get(1)
    assert len(server.arrivals) == 1


def test_errors_have_the_fields_and_can_be_pickled() -> None:
    """A 422 is a ValidationFailed with all errors; a response of a proxy has no code of ours."""
    body = {"code": "validation_error", "message": "email is invalid", "validation_errors": {"email": ["is invalid"]},
            "request_id": "r1", "reason": "in_use"}  # fmt: skip
    with (
        ScriptedServer(Reply(422, body)) as server,
        Campanero(server.url) as client,
        pytest.raises(errors.ValidationFailed) as failed,
    ):
        client.contacts.create(email="x")
    for error in (failed.value, pickle.loads(pickle.dumps(failed.value)), copy.copy(failed.value)):
        assert error.fields == {"email": ["is invalid"]}
        assert (error.status, error.code, error.reason, error.request_id) == (422, "validation_error", "in_use", "r1")
        assert str(error) == "422 validation_error: email is invalid"
    redirect = Reply(301, b"", {"Location": "https://mail.example.com/"})
    with (
        ScriptedServer(redirect) as server,
        Campanero(server.url, "key") as client,
        pytest.raises(errors.ApiError, match=r"redirects to https://mail\.example\.com/"),
    ):
        client.contacts.get(1)
    assert len(server.arrivals) == 1


def test_a_refused_connection_is_an_error_of_its_own() -> None:
    """The request was not sent, so it is repeated whatever it is."""
    client = Campanero("http://127.0.0.1:9", max_retries=0)
    with pytest.raises(errors.ConnectionFailed, match="GET /v1/my/account") as failed:
        client.account.get()
    assert not failed.value.was_sent


@pytest.mark.parametrize("key", ["", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_refused_without_naming_it(key: str) -> None:
    """A key from a file may end with a line break, which is left out."""
    with pytest.raises(ValueError, match="key must be an API key") as failed:
        Campanero("https://mail.example.com", key)
    assert not key or key not in str(failed.value)
    assert "secret" not in repr(Campanero("https://mail.example.com", "secret\n"))


@pytest.mark.parametrize(
    "url", ["mail.example.com", "ftp://mail.example.com", "https://a:b@mail.example.com", "https://m.example.com?x=1"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """A user name in the address would be sent instead of the key."""
    with pytest.raises(ValueError, match="url must"):
        Campanero(url, "key")


def test_a_file_that_arrives_incomplete_replaces_nothing(tmp_path: Path) -> None:
    """The existing file stays, and no partial file is left."""
    target = tmp_path / "contacts.csv"
    target.write_text("old")
    with (
        ScriptedServer(Reply(200, b"a,b\n1,2\n", cut=3)) as server,
        Campanero(server.url) as client,
        pytest.raises(errors.ConnectionFailed),
    ):
        client.exports.contacts_csv().save(target)
    assert [path.name for path in tmp_path.iterdir()] == ["contacts.csv"] and target.read_text() == "old"


def test_only_a_line_feed_ends_a_line() -> None:
    """Line separators of Unicode stand within the values of exports."""
    lines = ['{"name": "a\u2028b"}', '{"name": "c\x85"}']
    with ScriptedServer(Reply(200, "\n".join(lines).encode())) as server, Campanero(server.url) as client:
        download = client.exports.contacts_jsonl()
        assert [line.rstrip("\n") for line in download.lines()] == lines
        assert [record["name"] for record in download.records()] == ["a\u2028b", "c\x85"]


class UnseekableFile(io.RawIOBase):
    """A file that can be read once, as a pipe."""

    def __init__(self) -> None:
        self._content = [b"email\n", b""]

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the content, then nothing."""
        return self._content.pop(0) if self._content else b""


def test_a_file_is_sent_again_from_its_start_if_it_can_be() -> None:
    """After a 429 the whole file is sent again; what comes from a pipe is not."""
    with ScriptedServer(BUSY, DONE) as server, Campanero(server.url) as client:
        client.imports.create(io.BytesIO(b"email\na@example.org\n"), dry_run=True, resource="contacts")
        first, second = server.arrivals
        assert b"a@example.org" in first.body and first.body.count(b"a@example.org") == second.body.count(
            b"a@example.org"
        )
        assert first.path == "/v1/my/imports?dry_run=true" and b'name="resource"' in first.body
    with ScriptedServer(BUSY, DONE) as server, Campanero(server.url) as client, pytest.raises(errors.RateLimited):
        client.imports.create(UnseekableFile())  # type: ignore[arg-type]  # typeshed's IO has more methods
    assert len(server.arrivals) == 1


@pytest.mark.parametrize("language", ["", "..", "."])
def test_a_path_is_not_left_by_a_part_of_it(language: str) -> None:
    """Ids are numbers, and texts are one segment of a path each."""
    with ScriptedServer(DONE) as server, Campanero(server.url) as client:
        client.templates.get_translation(1, "de/../x")
        with pytest.raises(ValueError, match="part of a path"):
            client.templates.get_translation(1, language)
        with pytest.raises(ValueError, match="format code"):
            client.contacts.get("1/merge")  # type: ignore[arg-type]  # what a caller without types may do
    assert [arrival.path for arrival in server.arrivals] == ["/v1/my/templates/1/translations/de%2F..%2Fx"]


def test_pages_follow_each_other() -> None:
    """Iterating makes a request for each page, with the filters of the first."""
    first = Reply(200, [{"id": 1}, {"id": 2}], {"X-Total-Count": "3", "X-Total-Pages": "2", "X-Next-Page": "2"})
    last = Reply(200, [{"id": 3}], {"X-Total-Count": "3", "X-Total-Pages": "2", "X-Page-Number": "2"})
    with ScriptedServer(first, last, first, last) as server, Campanero(server.url) as client:
        assert [contact["id"] for contact in client.contacts.list(list_id=7)] == [1, 2, 3]
        pages = list(client.contacts.list(limit=2).pages())
    assert [(page.number, page.pages, page.total, len(page), page[0]["id"]) for page in pages] == [
        (1, 2, 3, 2, 1), (2, 2, 3, 1, 3),
    ]  # fmt: skip
    paths = [arrival.path.partition("?")[2] for arrival in server.arrivals]
    assert paths == ["list_id=7&limit=100", "list_id=7&limit=100&page=2", "limit=2", "limit=2&page=2"]


def test_a_list_that_leads_back_is_an_error() -> None:
    """A broken service cannot keep the client busy for ever, in threads and in async code."""
    pages = [Reply(200, [{"id": number}], {"X-Next-Page": "2"}) for number in (1, 2, 3)]
    message = "leads back from page 2 to page 2"
    with ScriptedServer(*pages, Reply(200, [])) as server, pytest.raises(errors.CampaneroError, match=message):
        list(Campanero(server.url).contacts.list())

    async def read(url: str) -> list[Any]:
        async with AsyncCampanero(url) as client:
            return [row async for row in client.contacts.list()]

    with ScriptedServer(*pages, Reply(200, [])) as server, pytest.raises(errors.CampaneroError, match=message):
        asyncio.run(read(server.url))


def test_async_client_does_the_same(tmp_path: Path) -> None:
    """Retries, pages, files and errors of the async client."""
    page = Reply(200, [{"id": 1}], {"X-Next-Page": "2"})
    broken = Reply(200, b"a\n1\n", cut=1)
    script = (LOST, DONE, page, Reply(200, [{"id": 2}]), BUSY, Reply(200, b'{"a":1}\n{"a":2}'), broken, Reply(404, {}))

    async def call(url: str) -> list[Any]:
        async with AsyncCampanero(url, "key") as client:
            results: list[Any] = [await client.events.create(event="order_paid", contact_id=1)]
            results.append([contact["id"] async for contact in client.contacts.list()])
            results.append([record["a"] async for record in client.exports.contacts_jsonl().records()])
            with pytest.raises(errors.ConnectionFailed):
                await client.exports.contacts_csv().save(tmp_path / "x.csv")
            with pytest.raises(errors.NotFound):
                await client.contacts.get(9)
        return results

    with ScriptedServer(*script) as server:
        assert asyncio.run(call(server.url)) == [{"id": 1}, [1, 2], [1, 2]]
    first, second = server.arrivals[:2]
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.headers["authorization"] == "Bearer key" and not [*tmp_path.iterdir()]


def test_a_hostile_service_raises_only_errors_of_the_client() -> None:
    """A date beyond all calendars is not a time to wait, and JSON of many levels has no message."""
    assert parse_retry_after("Mon, 01 Jan 99999999999999999999 00:00:00 GMT") is None
    response = httpx.Response(400, content=b'{"message":' + b"[" * 200_000, request=httpx.Request("GET", "http://a/"))
    assert api_error(response).status == 400
