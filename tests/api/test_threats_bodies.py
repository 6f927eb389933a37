"""Hostile request bodies: too large, compressed, invalid numbers and text, endless, smuggled requests (T20).

The tests read the OpenAPI document: every operation gets these bodies.
"""

import json
import socket
import time
from copy import deepcopy
from typing import Any

import pytest

from tests.api.test_threats_assignment import BODIES
from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.openapi_document import JSON, OpenApiDocument, Operation, body_with, validation_errors
from tests.kit.sampling import sampled
from tests.kit.server import Server
from tests.kit.tenants import Tenant
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import multipart_form

MOST, MAX_IMPORT, BESIDE = 2_097_152, 209_715_200, 262_144
TYPED = {"Content-Type": JSON}
# An integer with too many digits
HUGE = "1" + "0" * 6000
INVALID_TEXTS = ('"\\u0000"', '"a\\ud800b"', '"\\udc00\\ud800"')


def all_operations(api: Client) -> list[Operation]:
    """Return every operation of the document."""
    result = OpenApiDocument(api).operations()
    assert len(result) >= 50
    return result


def send(api: Client, operation: Operation, body: bytes, **headers: str) -> Response:
    """Send bytes to an operation with the API key."""
    return api.request(
        operation.method, operation.path_with_id(1), body, {"Authorization": f"Bearer {api.key}", **headers}
    )


def test_a_body_over_the_limit_is_413_everywhere(api: Client, full: bool) -> None:
    """One byte over the limit is a 413 on every path, also on those without a body; without a key it is a 401.

    A third of the paths, all with `--full`.
    """
    body = b'{"name":"' + b"x" * (MOST + 1 - 11) + b'"}'
    assert len(body) == MOST + 1
    for operation in all_operations(api)[:: 1 if full else 3]:
        if JSON not in operation.media_types and operation.media_types:
            continue
        response = api.request(
            operation.method, operation.path_with_id(1), body, TYPED | {"Authorization": f"Bearer {api.key}"}, False
        )
        assert (response.status, response.json["code"]) == (413, "payload_too_large"), operation
        assert api.request(operation.method, operation.path_with_id(1), body, TYPED, False).status == 401, operation
    assert api.request("GET", "/healthz", body, TYPED, False).status == 413
    reader = api.request("POST", "/v1/my/lists", body[:-1], TYPED | {"Authorization": f"Bearer {api.key}"})
    assert reader.status in (400, 422), "the last byte that is allowed"


def test_a_missing_scope_comes_before_the_size(server: Server) -> None:
    """A too large body without the scope is a 403."""
    narrow = server.client(server.new_key("narrow", "--scope", "templates:read"))
    body = b'{"name":"' + b"x" * MOST + b'"}'
    assert narrow.request("POST", "/v1/my/lists", body, TYPED | {"Authorization": f"Bearer {narrow.key}"}).status == 403


@pytest.mark.parametrize("coding", sampled(["gzip", "br", "deflate", "zstd", "gzip, br"], ["gzip", "gzip, br"]))
def test_compressed_bodies_are_415_everywhere(coding: str, api: Client) -> None:
    """No body is decompressed, which prevents decompression bombs."""
    reading = [operation for operation in all_operations(api) if operation.media_types]
    assert len(reading) >= 20
    for operation in reading:
        body, kind = multipart_form(b"email\n") if JSON not in operation.media_types else (b"{}", JSON)
        headers = {"Content-Type": kind, "Content-Encoding": coding}
        assert send(api, operation, body, **headers).status == 415, operation


def send_to(api: Client, operation: Operation, path: str, body: bytes) -> Response:
    """Send JSON to an operation at a given path."""
    return api.request(operation.method, path, body, TYPED | {"Authorization": f"Bearer {api.key}"})


def is_error_of(name: str, where: str) -> bool:
    """Return whether an error is that of a field; an error of a whole step or `data` counts for the fields in it."""
    is_outer = name == "steps[]" or name.rpartition(".")[2] == "data"
    return name.startswith(where) or (is_outer and where.startswith(f"{name}."))


def with_raw_text(value: Any, text: str) -> bytes:
    """Return a JSON body in which `"?"` is replaced by text that no encoder would write."""
    return json.dumps(value).replace('"?"', text).encode()


@pytest.fixture(scope="module")
def mine(api: Client) -> Tenant:
    """Return an account with one object of every kind."""
    return Tenant(api).create_objects("mine")


@pytest.mark.parametrize("text", sampled(INVALID_TEXTS, ['"\\u0000"', '"a\\ud800b"']))
def test_invalid_text_is_422_in_every_field(text: str, api: Client, mine: Tenant, full: bool) -> None:
    """A NUL or a lone surrogate is an error of its field, and nothing is written.

    Each field gets one of both, with `--full` every text.
    """
    walk, fields, turn = OpenApiDocument(api), 0, INVALID_TEXTS.index(text)
    before = {path: body for path, body in mine.read_all().items() if "events" not in path}
    for operation in walk.operations():
        schema = walk.request_schema(operation)
        for where, leaf in walk.leaves(schema) if schema is not None else ():
            if leaf.get("type") not in ("string", "object") or where.endswith("[]"):
                continue
            turn += 1
            if turn % 2 and not full:
                continue
            value = {"key": "?"} if leaf.get("type") == "object" else "?"
            path = mine.path(operation) if operation.has_id else operation.path
            response = send_to(
                api, operation, path, with_raw_text(body_with(where, value, deepcopy(BODIES[str(operation)])), text)
            )
            names = [name.replace("[0]", "[]") for name in validation_errors(response)]
            assert any(is_error_of(name, where) for name in names), (operation, where, response.text)
            fields += 1
    assert fields >= (70 if full else 35)
    assert {path: body for path, body in mine.read_all().items() if "events" not in path} == before


@pytest.mark.parametrize("number", sampled([HUGE, "-" + HUGE, "1e400", "-1e400"], [HUGE, "-1e400"]))
def test_invalid_numbers_are_422_in_every_field(number: str, api: Client, mine: Tenant, full: bool) -> None:
    """A number that is too large is an error wherever a number or any value is allowed.

    Each field gets one of two, with `--full` every number.
    """
    walk, fields, turn = OpenApiDocument(api), 0, len(number) % 2
    for operation in walk.operations():
        schema = walk.request_schema(operation)
        for where, leaf in walk.leaves(schema) if schema is not None else ():
            many = walk.contains_ids(where, leaf) and leaf.get("type") == "array"
            if leaf.get("type") not in ("integer", "number", "object") and not many:
                continue
            turn += 1
            if turn % 2 and not full:
                continue
            value: Any = ["?"] if many else {"key": ["?"]} if leaf.get("type") == "object" else "?"
            path = mine.path(operation) if operation.has_id else operation.path
            headers = TYPED | {"Authorization": f"Bearer {api.key}"}
            response = api.request(
                operation.method,
                path,
                with_raw_text(body_with(where, value, deepcopy(BODIES[str(operation)])), number),
                headers,
            )
            names = [name.replace("[0]", "[]") for name in validation_errors(response)]
            assert any(is_error_of(name, where) for name in names), (operation, where, response.text)
            fields += 1
    assert fields >= (30 if full else 15)
    filters = [{"name": "email_sent_count", "predicate": "gt", "value": "?"}]
    headers = TYPED | {"Authorization": f"Bearer {api.key}"}
    for path in ("/v1/my/segments/count", "/v1/my/segments"):
        assert (
            api.request("POST", path, with_raw_text({"name": "n", "filters": filters}, number), headers).status == 422
        )


@pytest.mark.parametrize("text", sampled(["NaN", "Infinity", "-Infinity"], ["NaN", "-Infinity"]))
def test_nan_is_invalid_json(text: str, api: Client) -> None:
    """NaN and Infinity are a 400 in every operation that reads JSON (docs/decisions.md#3)."""
    for operation in all_operations(api):
        if JSON in operation.media_types:
            assert send(api, operation, with_raw_text({"data": {"x": "?"}}, text), **TYPED).status == 400, operation


def send_raw(server: Server, *sent: bytes, pause: float = 0) -> bytes:
    """Send bytes and return everything received until the server closes the connection."""
    response = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        try:
            for piece in sent:
                connection.sendall(piece)
                time.sleep(pause)
            while piece := connection.recv(65536):
                response += piece
        except (ConnectionError, TimeoutError):
            pass
    return response


CHUNKED = "Transfer-Encoding: chunked"
SMUGGLED = {
    "length and chunks": f"Content-Length: 4\r\n{CHUNKED}",
    "chunks and length": f"{CHUNKED}\r\nContent-Length: 4",
    "two lengths": "Content-Length: 13\r\nContent-Length: 4",
    "the same length twice": "Content-Length: 13\r\nContent-Length: 13",
    "a list of lengths": "Content-Length: 13, 13",
    "a signed length": "Content-Length: +13",
    "a negative length": "Content-Length: -13",
    "a length with a mark in it": "Content-Length: 1_3",
    "no length": "Content-Length: ",
    "chunks that are none": "Transfer-Encoding: xchunked",
    "packed chunks": "Transfer-Encoding: gzip, chunked",
    "chunks twice": f"{CHUNKED}\r\nTransfer-Encoding: identity",
    "a space before the colon": "Content-Length : 13",
    "a tab before the colon": f"{CHUNKED.replace(':', chr(9) + ':')}",
    "a line that goes on": "X-One: two\r\n Content-Length: 13",
    "a lone return": "X-One: two\rContent-Length: 13",
    "no name": ": 13",
}


@pytest.mark.parametrize("how", SMUGGLED)
def test_no_request_is_smuggled(how: str, server: Server) -> None:
    """A request with an ambiguous length is a 400, and the rest of the connection is not read."""
    api = server.client()
    before = api.get("/lists").headers["X-Total-Count"]
    head = f"Host: x\r\nAuthorization: Bearer {api.key}\r\nContent-Type: {JSON}\r\n"
    inner = f'POST /v1/my/lists HTTP/1.1\r\n{head}Content-Length: 19\r\n\r\n{{"name":"smuggled"}}'
    outer = f'POST /v1/my/lists HTTP/1.1\r\n{head}{SMUGGLED[how]}\r\n\r\n{{"name":"out"}}\r\n'
    responses = send_raw(server, (outer + inner).encode())

    assert responses.startswith(b"HTTP/1.1 400") and responses.count(b"HTTP/1.1") == 1
    assert api.get("/lists").headers["X-Total-Count"] == before


def test_slow_connections_do_not_block_others(server: Server) -> None:
    """With 200 slow connections other requests get a response at once."""
    api = server.client()
    head = f"POST /v1/my/lists HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\nContent-Type: {JSON}\r\n"
    upload = f"POST /v1/my/imports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\n"
    upload += "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 5000\r\n\r\n--b\r\n"
    started_at = (head, head + "Content-Length: 5000\r\n\r\n{", head + f"{CHUNKED}\r\n\r\n5\r\n{{", upload)
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(200)]
    try:
        for number, connection in enumerate(slow):
            connection.sendall(started_at[number % 4].encode())
        times = []
        for number in range(60):
            slow[number * 3].sendall(b" ")
            at = time.monotonic()
            assert api.request("GET", "/healthz", None, {}).status == 200
            api.get("/lists", limit=1).expect(200)
            times.append(time.monotonic() - at)
        assert sorted(times)[-3] < extend_timeout(0.2), sorted(times)[-5:]
    finally:
        for connection in slow:
            connection.close()
    assert api.post("/lists", {"name": "after the slow ones"}).status == 201


def test_a_chunked_import_is_limited(fresh_server: FreshServer) -> None:
    """A chunked body over the limit is a 413 with the limit in a sentence, is not read further, and leaves no file."""
    server = fresh_server(env={"CAMPANERO_LIMITS__IMPORT_BYTES": "1000000"})
    key = server.client().key
    head = (f"POST /v1/my/imports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: multipart/form-data; boundary=b\r\n{CHUNKED}\r\n\r\n").encode()  # fmt: skip
    begin = b'--b\r\nContent-Disposition: form-data; name="file"; filename="p.csv"\r\n\r\nemail\n'
    line = b"somebody@example.org\n" * 3000
    pieces = [head, b"%x\r\n%s\r\n" % (len(begin), begin)] + [b"%x\r\n%s\r\n" % (len(line), line)] * 40
    response = send_raw(server, *pieces)
    assert response.startswith(b"HTTP/1.1 413")
    assert b'"An import may have at most 1000000 bytes."' in response
    assert [path.name for path in (server.data / "imports").iterdir()] == []
    assert server.client().get("/imports").json == []
    head = head.replace(b"Host: x", b"Host: x\r\nConnection: close")
    assert send_raw(server, head, *pieces[1:10], b"9\r\n\r\n--b--\r\n\r\n0\r\n\r\n").startswith(b"HTTP/1.1 201")


@pytest.mark.parametrize("length", [MAX_IMPORT + BESIDE + 1, 2**31, 2**63, 10**30])
def test_a_too_long_import_is_rejected_at_once(length: int, server: Server) -> None:
    """A Content-Length over the limit is a 413 before the body is sent, and a 401 without a key."""
    key = server.client().key
    for auth, status in ((f"Authorization: Bearer {key}\r\n", b"413"), ("", b"401")):
        head = (f"POST /v1/my/imports HTTP/1.1\r\nHost: x\r\n{auth}Content-Type: multipart/form-data; boundary=b\r\n"
                f"Content-Length: {length}\r\n\r\n--b\r\n")  # fmt: skip
        started_at = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(head.encode())
            assert connection.recv(4096).startswith(b"HTTP/1.1 " + status)
        assert time.monotonic() - started_at < extend_timeout(1)
