"""Requests without a key that try to hold up the single process: other clients are answered meanwhile (T22)."""

import json
import threading
import time
from collections.abc import Iterator

import pytest

from appliance.core.logs import redact
from tests.kit.client import Client
from tests.kit.raw_http import exchange_bytes
from tests.kit.server import Server
from tests.kit.timeouts import cpu_seconds

# The longest wait of another client, in processor time of the service: on a busy machine anybody may wait longer.
# The best of some attempts counts; the attacks here held the process for seconds at each attempt.
MAX_WAIT_SECONDS = 0.2
ATTEMPTS = 5
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Probe:
    """Asks for /healthz every 10 ms while it is open, and keeps the longest wait in seconds.

    What the service did not work on while it waited for a processor does not count.
    """

    def __init__(self, server: Server) -> None:
        self.server, self.longest = server, 0.0
        self._has_begun, self._is_over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._is_over.wait(0.01):
            begun, used = time.monotonic(), cpu_seconds(self.server.pid)
            assert exchange_bytes(self.server.port, HEALTH, timeout=60).startswith(b"HTTP/1.1 200 ")
            wait = min(time.monotonic() - begun, cpu_seconds(self.server.pid) - used)
            self.longest = max(self.longest, wait)
            self._has_begun.set()

    def __enter__(self) -> "Probe":
        self._thread.start()
        assert self._has_begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def ask(server: Server, request: bytes) -> tuple[int, bytes]:
    """Send a request while another client probes the service, and return its status and body."""
    waits = []
    for _ in range(ATTEMPTS):
        with Probe(server) as probe:
            answer = exchange_bytes(server.port, request, timeout=90)
        waits.append(probe.longest)
        if probe.longest < MAX_WAIT_SECONDS or probe.longest > 20 * MAX_WAIT_SECONDS:
            break
    assert min(waits) < MAX_WAIT_SECONDS, (request[:200], waits)
    return parse(answer)


def parse(answer: bytes) -> tuple[int, bytes]:
    """Return the status and the body of a response."""
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


def get(path: bytes, *lines: bytes) -> bytes:
    """Return a GET request with further header lines."""
    return b"\r\n".join([b"GET " + path + b" HTTP/1.1", b"Host: a", b"Connection: close", *lines, b"", b""])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose log shows no traceback at the end."""
    with Server().set_up() as running:
        yield running
        running.stop()
        assert "Traceback" not in running.output


@pytest.mark.parametrize(
    "text", ["a", "%", "@", "eyJaaaaaa-", "a.", "+1", "/u/", "camp_live_", "whsec_", "a%40", "x@y"]
)
def test_a_long_text_is_redacted_in_time(text: str) -> None:
    """The log is written on the event loop, so the time for a text is in proportion to its length, whatever it is."""
    for length in (5_000, 20_000, 200_000):
        begun = time.process_time()
        redact(text * (length // len(text)))
        assert time.process_time() - begun < 0.2, length


def test_a_cut_line_of_the_log_names_nobody() -> None:
    """A very long line is cut between two words, so that no half address stays in it."""
    line = redact("x" * 65_000 + " " + "ann.lee " * 40 + "ann.lee@example.org " * 40)
    assert "ann.lee@" not in line and len(line) < 65_600 and line.endswith("… (66121 characters)")
    assert redact("a" * 65_530 + " ann.lee@example.org").startswith("a" * 65_530 + " … (")


@pytest.mark.parametrize("value", [b"a" * 20_000, b"a" * 32_000, b"a/b," * 7_000, b";" * 30_000, b"," * 30_000])
def test_a_long_accept_header_stops_nobody(value: bytes, server: Server) -> None:
    """An unknown path with an Accept header that cannot be parsed is 404, and nobody waits for it."""
    assert ask(server, get(b"/nope", b"Accept: " + value))[0] == 404


UNREADABLE = [
    b"/", b"*", b"text", b",", b";", b"\xff", b"text/html;q=foo", b"text/html;q=nan", b"a/b;q", b"a/b;type_=1",
    b"a/b;self=1", b"/html", b"text/", b"",
]  # fmt: skip


@pytest.mark.parametrize("value", UNREADABLE)
def test_an_unreadable_accept_header_counts_as_any_type(value: bytes, server: Server, api: Client) -> None:
    """An unknown path is a page, and below /api it is JSON, as without the header."""
    status, page = parse(exchange_bytes(server.port, get(b"/nope", b"Accept: " + value)))
    assert status == 404 and page.startswith(b"<!doctype html>")
    status, body = parse(exchange_bytes(server.port, get(b"/api/nope", b"Accept: " + value)))
    assert (status, json.loads(body)["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("value", "is_json"),
    [
        ("application/json", True), ("Application/JSON; charset=utf-8", True), ("text/html", False),
        ("text/html;q=0.5, application/json", True), ("text/html, application/json;q=0.9", False),
        ("text/html,application/json", False), ("text/html;q=0, application/json;q=0.1", True),
        ("application/json;q=0", False), ("?, application/json", True), ("*/*", False), ("application/*", False),
    ],
)  # fmt: skip
def test_a_client_that_prefers_json_gets_it_for_an_unknown_path(value: str, is_json: bool, server: Server) -> None:
    """The preferred of the types that the header names decides; wildcards and unreadable items do not count."""
    body = parse(exchange_bytes(server.port, get(b"/nope", b"Accept: " + value.encode())))[1]
    assert body.startswith(b"{" if is_json else b"<!doctype html>")


HEADERS = (
    b"Cookie", b"Forwarded", b"X-Forwarded-For", b"X-Forwarded-Host", b"X-Forwarded-Proto", b"Authorization",
    b"Content-Type", b"X-Request-Id", b"Origin", b"Referer", b"Accept-Language", b"Accept-Encoding", b"If-None-Match",
    b"If-Modified-Since", b"Range", b"Upgrade", b"Connection", b"Content-Encoding", b"Idempotency-Key", b"Expect",
    b"HX-Request", b"HX-Target", b"HX-Current-URL", b"Sec-Fetch-Site",
)  # fmt: skip
VALUES = (
    b"", b"\xff", b"\xc3\x28", b";", b",", b"=", b'"', b"\\", b"%", b"%ff", b"[", b"[::1", b"http://[", b"a" * 8_000,
    b"9" * 5_000, b"a=b;" * 2_000, b'campanero="', b"campanero=\xff", b"Bearer", b"Bearer \xff",
    b"Basic " + b"a" * 5_000, b"for=\xff", b"bytes=a-b", b'multipart/form-data; boundary="', b"text/html; charset=nope",
)  # fmt: skip
PATHS = (b"/nope", b"/login", b"/", b"/v1/my/lists", b"/api/nope", b"/u/x", b"/f/x", b"/app.css", b"/hooks/ses")


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_no_header_breaks_a_request(name: bytes, method: bytes, server: Server, full: bool) -> None:
    """Every header that is read gets hostile values: each request has an answer below 500.

    Each value goes to one path, with `--full` to all.
    """
    first = HEADERS.index(name)
    for at, value in enumerate(VALUES):
        for path in PATHS if full else [PATHS[(first + at) % len(PATHS)]]:
            lines = [b"Host: a", b"Connection: close", b"Content-Length: 3", name + b": " + value]
            head = b"\r\n".join([method + b" " + path + b" HTTP/1.1", *lines, b"", b"a=b"])
            answer = exchange_bytes(server.port, head, timeout=30)
            assert answer.startswith(b"HTTP/1.1 ") and int(answer.split()[1]) < 500, (path, value, answer[:200])


def post(path: bytes, kind: bytes, body: bytes) -> bytes:
    """Return a POST request of a form from the service's own page."""
    lines = [b"Sec-Fetch-Site: same-origin", b"Content-Type: " + kind, b"Content-Length: %d" % len(body)]
    head = [b"POST " + path + b" HTTP/1.1", b"Host: a", b"Connection: close", *lines, b"", b""]
    return b"\r\n".join(head) + body


def fill(unit: bytes, size: int = 2_000_000) -> bytes:
    """Return a body of about `size` bytes that repeats a unit."""
    return unit * (size // len(unit))


PART = b'--Q\r\nContent-Disposition: form-data; name="a"\r\n'
MULTIPART, FORM = b"multipart/form-data; boundary=", b"application/x-www-form-urlencoded"
# The type and the body of forms that took Sanic's parser up to 5 seconds, or were read in a charset of their choice
FORMS = {
    "a boundary of one dash": (MULTIPART + b"-", fill(b"-")), "its lines": (MULTIPART + b"-", fill(b"\r\n---")),
    "many parts": (MULTIPART + b"Q", fill(PART + b"\r\nx\r\n") + b"--Q--"),
    "many header lines": (MULTIPART + b"Q", b"--Q\r\n" + fill(b"A: b\r\n") + b"\r\n\r\n--Q--"),
    "many parts of header lines": (MULTIPART + b"Q", fill(b"--Q\r\n" + b"A:\r\n" * 4000 + b"\r\nx\r\n") + b"--Q--"),
    "many parameters": (MULTIPART + b"Q", PART[:-2] + fill(b'; a="b"') + b"\r\n\r\nx\r\n--Q--"),
    "a charset": (MULTIPART + b"Q", PART + b"Content-Type: a/b; charset=idna\r\n\r\n" + fill(b"9a") + b"\r\n--Q--"),
    "no boundary": (b"multipart/form-data", fill(b"-")), "an empty boundary": (MULTIPART, fill(b"-")),
    "many fields": (FORM, fill(b"a=1&")), "many escapes": (FORM, b"a=" + fill(b"%41x")),
    "escapes in many fields": (FORM, fill(b"a=" + b"%C3%A4" * 70 + b"&")), "many separators": (FORM, fill(b"&")),
}  # fmt: skip


FORM_PATHS = (b"/u/x", b"/login", b"/p/x", b"/templates/import", b"/d/x", b"/lists", b"/f/x")


@pytest.mark.parametrize("name", FORMS)
def test_a_form_stops_nobody(name: str, server: Server, full: bool) -> None:
    """Two megabytes of a form are refused or read while others are answered, on all pages that read a form.

    Each form goes to two pages, with `--full` to all.
    """
    first = list(FORMS).index(name)
    for path in FORM_PATHS if full else [FORM_PATHS[(first + step) % len(FORM_PATHS)] for step in (0, 1)]:
        status, _ = ask(server, post(path, *FORMS[name]))
        assert status in ((413,) if path[2:] == b"/x" else (303, 400, 401, 413, 422)), (path, status)


@pytest.mark.parametrize("path", [b"/u/x", b"/login"])
@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        (MULTIPART + b"-", b"\r\n---" * 9_000, 413), (MULTIPART + b"Q", PART * 102, 413),
        (MULTIPART + b"Q" * 71, b"x", 400), (MULTIPART + b'"Q "', PART, 400),
        (MULTIPART + b'"\xc3\xa4"', PART, 400), (FORM, b"&" * 5_000, 413),
    ],
)  # fmt: skip
def test_a_hostile_form_is_refused(path: bytes, kind: bytes, body: bytes, status: int, server: Server) -> None:
    """Too many parts or fields are 413, and a boundary that RFC 2046 forbids is 400."""
    assert ask(server, post(path, kind, body))[0] == status


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"multipart/form-data", b"x"), (MULTIPART, b"x"), (MULTIPART + b"Q", PART + b"\r\nx"), (MULTIPART + b"Q", b""),
        (MULTIPART + b"Q", PART + b"X: " + b"x" * 5_000 + b"\r\n\r\n\r\n--Q--"), (FORM, b"\xff"),
        (MULTIPART + b"Q", PART + b"\r\n\xff\r\n--Q--"), (MULTIPART + b"-", b"--" * 10_000),
    ],
)  # fmt: skip
def test_what_is_no_form_has_no_fields(kind: bytes, body: bytes, server: Server) -> None:
    """A form without an end or a boundary, with a long header or not in UTF-8, is read as an empty one."""
    complete = b'--Q\r\nContent-Disposition: form-data; name="confirm"\r\n\r\n1\r\n--Q--'
    assert ask(server, post(b"/u/x", MULTIPART + b"Q", complete))[0] == 404, "an unknown token"
    assert ask(server, post(b"/u/x", kind, body.replace(b'"a"', b'"confirm"')))[0] == 400


def chunked(size: int, count: int, path: bytes = b"/lists") -> bytes:
    """Return a POST request of a form in chunks of `size` bytes."""
    lines = [b"Sec-Fetch-Site: same-origin", b"Content-Type: " + FORM, b"Transfer-Encoding: chunked"]
    head = [b"POST " + path + b" HTTP/1.1", b"Host: a", b"Connection: close", *lines, b"", b""]
    return b"\r\n".join(head) + (b"%x\r\n" % size + b"a" * size + b"\r\n") * count + b"0\r\n\r\n"


def test_chunks_of_one_byte_are_refused(server: Server) -> None:
    """After the first thousand, chunks of a few bytes are 400 and the connection is closed; nobody waits for them."""
    assert ask(server, chunked(1, 150_000))[0] == 400
    assert ask(server, chunked(15, 20_000))[0] == 400


@pytest.mark.parametrize(("size", "count"), [(1, 900), (16, 20_000), (40, 40_000), (1_400, 1_000)])
def test_a_client_that_streams_small_chunks_is_served(size: int, count: int, server: Server) -> None:
    """Short bodies of any chunks and long ones of small chunks are read; nobody waits for them."""
    assert ask(server, chunked(size, count))[0] == 401


def in_list(unit: bytes, count: int) -> bytes:
    """Return a list of so many units and a number, as JSON."""
    return b"[" + (unit + b",") * count + b"1]"


MESSAGE = b'{"to":"a@example.org","subject":"x","body":"x","data":{"a":%s}}'
KEYS = b"{" + b",".join(b'"%d":0' % number for number in range(49_000)) + b"}"
# The path, the body and the status of JSON bodies that took up to 2.5 seconds on the event loop. The first have too
# many values; the others have as many as are allowed, and are parsed in a thread.
JSON_BODIES = {
    "objects": ("messages", MESSAGE % in_list(b"{}", 680_000), 413),
    "infinite numbers": ("messages", MESSAGE % in_list(b"1e400", 330_000), 413),
    "integers": ("lists/{list_id}/contacts/bulk", b'{"add":%s}' % in_list(b"1", 1_000_000), 413),
    "events": ("events/batch", b'{"events":%s}' % in_list(b"{}", 690_000), 413),
    "filters": ("segments/count", b'{"filters":%s}' % in_list(b"[]", 690_000), 413),
    "brackets": ("messages", MESSAGE % (b"[" * 1_000_000 + b"]" * 1_000_000), 413),
    "fewer objects": ("messages", MESSAGE % in_list(b"{}", 49_000), 422),
    "fewer objects with values": ("messages", MESSAGE % in_list(b'{"a":[]}', 33_000), 422),
    "fewer infinite numbers": ("messages", MESSAGE % in_list(b"1e400", 99_000), 422),
    "long integers": ("messages", MESSAGE % in_list(b"9" * 300, 6_500), 422),
    "half characters": ("messages", MESSAGE % (b'["' + b"\\ud800" * 340_000 + b'"]'), 422),
    "fewer integers": ("lists/{list_id}/contacts/bulk", b'{"add":%s}' % in_list(b"1", 99_000), 422),
    "texts": ("lists/{list_id}/contacts/bulk", b'{"add":%s}' % in_list(b'"x"', 99_000), 422),
    "fewer events": ("events/batch", b'{"events":%s}' % in_list(b"{}", 49_000), 422),
    "lists": ("contacts", b'{"email":"q@example.org","list_ids":%s}' % in_list(b'""', 99_000), 422),
    "fewer filters": ("segments/count", b'{"filters":%s}' % in_list(b"{}", 49_000), 422),
    "keys": ("messages", KEYS, 422),
    "keys of data": ("messages", MESSAGE % KEYS, 422),
    "keys of an event": ("events", b'{"name":"a","email":"q@example.org","data":%s}' % KEYS, 422),
    "keys of a trigger": ("flows", b'{"name":"x","trigger":%s}' % KEYS, 422),
    "keys of a step": ("flows", b'{"name":"x","steps":[%s]}' % KEYS, 422),
    "keys of a filter": ("segments", b'{"name":"x","filters":[%s]}' % KEYS, 422),
    "keys of attributes": ("campaigns", b'{"name":"x","trigger_attributes":%s}' % KEYS, 422),
    "keys of a design": ("templates/preview", b'{"document":%s}' % KEYS, 200),
    "brackets within the limit": ("messages", MESSAGE % (b"[" * 99_000 + b"]" * 99_000), 400),
}  # fmt: skip


@pytest.fixture(scope="module")
def list_id(api: Client) -> int:
    """Return the id of a list."""
    return int(api.post("/lists", {"name": "Readers"}).expect(201)["id"])


@pytest.mark.parametrize("name", JSON_BODIES)
def test_a_json_body_stops_nobody(name: str, server: Server, list_id: int) -> None:
    """Many values in a body of at most 2 MB are counted before they are parsed, and are not parsed on the loop."""
    path, body, status = JSON_BODIES[name]
    path = path.replace("{list_id}", str(list_id))
    assert len(body) <= 2_097_152
    lines = [b"Authorization: Bearer " + server.key.encode(), b"Content-Type: application/json"]
    head = [b"POST /v1/my/" + path.encode() + b" HTTP/1.1", b"Host: a", b"Connection: close", *lines]
    request = b"\r\n".join([*head, b"Content-Length: %d" % len(body), b"", b""]) + body
    assert ask(server, request)[0] == status


def test_the_limit_of_values_is_named(api: Client) -> None:
    """The error says how many values are allowed; text with as many commas as a long email has is not a problem."""
    error = api.post("/contacts", {"email": "q@example.org", "list_ids": [1] * 100_001}).expect(413)
    assert error["code"] == "payload_too_large"
    assert error["message"] == "The request body has too many values (maximum is 100000)."
    body = "<p>" + "a, b " * 90_000 + "</p>"
    api.post("/messages", {"to": "a@example.org", "subject": "Commas", "body": body}).expect(201)
