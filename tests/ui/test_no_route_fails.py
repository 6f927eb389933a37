"""No request to any route leads to a 5xx or a traceback in the log.

Routes are requested with slashes, methods, ids, headers and fields that browsers do not send: by default every sixth
route with a sample of them, with `--full` each route with all of them.
"""

import random
import re
from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import quote_plus

import pytest

from tests.kit.raw_http import RawConnection, RawResponse
from tests.kit.routes import list_routes
from tests.kit.sampling import thin_out
from tests.kit.server import EMAIL, PASSWORD, ROOT, Server
from tests.kit.tenants import Tenant

SERVER_ENV = {"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "100000"}
T = TypeVar("T")
MAX_SAMPLE = 1
FORM = "application/x-www-form-urlencoded"
# Routes that end what others need: requested last
_ENDS = re.compile(r"delete|logout|password|otp|sessions|erase|close|clear|stop|revoke|discard|cancel|undo|/role")
# Routes that start processes or call other machines, which are tested elsewhere
_SLOW = re.compile(r"/backup|/restored|/settings/doctor|/verify|/rotate|/test$")
IDS = (
    "0", "-1", "+1", "%201", "1_000", "%D9%A3", "1.0", "1e3", "0x1", "9223372036854775808", "9" * 40, "9" * 5000,
    "%00", "%ff", "%2f", "%2F..%2F..", "%c0%af", "1;x=1", "..", "%", "%zz", "a" * 3000, "'", "%F0%9F%98%80",
)  # fmt: skip
METHODS = ("OPTIONS", "TRACE", "PROPFIND", "get", "DELETE", "PUT", "X" * 200)
HEADERS = (
    "HX-Request: true\r\nHX-Target: div#nobody", "HX-Request: true\r\nHX-Target: #", "HX-Request: true",
    "HX-Request: true\r\nHX-Target: div#content\r\nHX-Trigger: \xff\xfe\r\nHX-Current-URL: http://[",
    "HX-Request: true\r\nHX-Request-Type: full\r\nHX-Target: main#main\r\nHX-Boosted: true",
    "HX-Request: maybe\r\nHX-Current-URL: javascript:alert(1)\r\nHX-History-Restore-Request: true",
    "Accept: ;;q=,\xff\r\nAccept-Language: xx-\xff;q=nan,*;q=-1\r\nAccept-Encoding: gzip;q=x, br;;",
    "Range: bytes=9-1,-0,x\r\nIf-Range: \"\r\nIf-None-Match: W/\"\r\nIf-Modified-Since: Thu, 99 Foo 0000 99:99:99 GMT",
    "Range: bytes=0-\r\nIf-Match: *\r\nIf-None-Match: *\r\nIf-Unmodified-Since: \xff",
    "Cookie: =; ;;a=\"\\400\\\"; \xff=\xff; session=\xff; $Version=1\r\nCookie: b=%00",
    "Origin: http://[\r\nReferer: http://[::1\r\nSec-Fetch-Site: \xff", "Origin: null\r\nReferer: //\\\\:99999/%ff",
    "Content-Type: \xff/;;charset=\"\r\nContent-Encoding: br", "Content-Type: multipart/form-data",
    "Content-Type: text/html; charset=no-such", "X-Forwarded-For: ,,\xff\r\nX-Forwarded-Proto: x\r\nForwarded: for=\"",
    "Authorization: Bearer\r\nX-Forwarded-Host: x", "Authorization: Bearer \xff", "Authorization: Bearer a.b.c",
    "Authorization: Basic !!!", "Idempotency-Key: \xff", "Expect: 200-maybe\r\nContent-Length: 0",
    "Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Key: x", "Accept: text/event-stream",
)  # fmt: skip
QUERIES = (
    "?", "??", "?&=&==&", "?page=99999999999999999999&limit=0", "?page=-1&page=2&page=x", "?page=%D9%A3&limit=9e9",
    "?ids[]=1&ids[0][x]=2&ids=", "?q=%ff%fe&search=%ed%a0%80&sort=%00", "?sort=-nothing&order=x&filters=[[[",
    "?" + "a" * 9000,
    "?ids=" + ",".join("9" * 20 for _ in range(300)), "?status=x&phase=x&channel=x&tab=x&by=x&of=x&kind=x&state=x",
    "?filters=%7B%22a%22&steps=null&at=9e99&from=0001-01-01&to=9999-99-99&day=x&as=%D9%A3",
    "?contact_id=9223372036854775808&list=-1&segment=99999999999999999999&campaign=%00&flow=1_0&next=//evil&all=1",
)  # fmt: skip
VALUES = (
    "",
    "x",
    "\x00",
    "٣",
    "9" * 40,
    "9" * 400,
    "-1",
    "1",
    "\ud800",
    "[]",
    '{"a":[[{}]]}',
    "null",
    "{{ x",
    "a@b",
    "é" * 99,
)


# (content type, body) that no form of ours sends
BROKEN_BODIES = (
    (FORM, b"%ff=%fe&\x00&==&a[b]=c&%00"),
    *(("application/json", body) for body in (
        b"[]", b"null", b"{", b'{"name": [], "ids": {}, "at": 1e999}', b"\xff",
    )),
    ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n\xff\r\n--x--'),
    ("multipart/form-data; boundary=x", b"--x\r\n\r\n"),
    ("text/plain", b"x"),
)  # fmt: skip


def shapes(path: str) -> Iterator[str]:
    """Yield malformed variants of a path."""
    yield from (f"{path}/", f"{path}//", f"/{path}", path.replace("/", "//"), f"{path}/.", f"{path};x=1", f"{path}%00")
    yield from (f"{path}%2f", f"{path}/%ff", f"{path}.", path.upper(), f"http://evil.example{path}/", f"{path}/x/")
    yield f"http://127.0.0.1{path}/"


class Walker:
    """Sends requests to all routes: signed in, with a key, or anonymous."""

    def __init__(self, server: Server, full: bool) -> None:
        self.server, self.full = server, full
        self.random = random.Random(20_261_123)
        self.wire = RawConnection(server.port)
        self.request_count, self.failures = 0, list[str]()
        self.cookie = ""
        self.names: set[str] = {"page", "ids", "id", "name"}
        self._read: dict[str, RawResponse | None] = {}
        self.blocks = {
            name for file in (ROOT / "ui" / "html").rglob("*.html")
            for name in re.findall(r"{%-? block (\w+)", file.read_text())
        }  # fmt: skip

    def sample(self, choices: tuple[T, ...]) -> list[T]:
        """Return all choices with `--full`, else a random sample."""
        return list(choices) if self.full else self.random.sample(choices, min(MAX_SAMPLE, len(choices)))

    def sign_in(self) -> None:
        """Sign in as the owner and keep the cookie."""
        body = f"email={quote_plus(EMAIL)}&password={quote_plus(PASSWORD)}".encode()
        response = self.send("POST", "/login", f"Content-Type: {FORM}\r\nSec-Fetch-Site: same-origin", body)
        assert response is not None and response.status == 303, response
        self.cookie = "Cookie: " + "; ".join(
            cookie.partition(";")[0] for cookie in response.headers.get_all("set-cookie") or []
        )

    def credentials(self, path: str) -> str:
        """Return the header that authorises requests to a path."""
        has_key = path.startswith(("/v1", "/metrics"))
        return f"Authorization: Bearer {self.server.key}" if has_key else self.cookie

    def read(self, path: str) -> RawResponse | None:
        """Return the response to a plain request with credentials, which is sent once."""
        if path not in self._read:
            self._read[path] = self.send("GET", path, self.credentials(path))
        return self._read[path]

    def send(self, method: str, target: str, headers: str = "", body: bytes = b"") -> RawResponse | None:
        """Send a request and record a failure; return None without a response."""
        lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *filter(None, headers.split("\r\n"))]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        request = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body
        self.request_count += 1
        try:
            response = self.wire.request(request, method)
        except (OSError, ValueError) as error:
            self.failures.append(f"{method} {target[:200]} [{headers[:300]}] {body[:200]!r}: {error!r}")
            self.wire.close()
            return None
        if response.status >= 500:
            self.failures.append(f"{method} {target[:200]} [{headers[:300]}] {body[:200]!r}: {response.status}")
        return response


def fill_parameters(path: str, value: str) -> str:
    """Return the path of a route with the same value for each parameter."""
    return re.sub(r"<[^>]+>", lambda _: value, path)


def fill_existing(path: str, ids: dict[str, int]) -> str:
    """Return the path of a route with ids of existing objects."""
    noun = path.removeprefix("/v1/my").strip("/").partition("/")[0]
    first = str(ids.get(noun, 1))
    return re.sub(r"<(\w+):?\w*>", lambda match: first if match[1] in ("number", f"{noun[:-1]}_id") else "1", path)


@pytest.fixture(scope="module")
def walker(server: Server, full: bool) -> Iterator[Walker]:
    """A walker for an account with one object of each kind and a sent campaign."""
    tenant = Tenant(server.client()).create_objects("alpha")
    api, things = tenant.api, tenant.object_ids
    content = {"subject": "Hi", "body": '<p><a href="https://example.org/x">x</a></p>'}
    campaign_id = api.post("/campaigns", {"name": "Sent", "template_attributes": content}).expect(201)["id"]
    trigger = {"contact_list_id": things["lists"]}
    api.post(f"/campaigns/{campaign_id}/send", {"trigger_attributes": trigger}).expect(200)
    api.wait(f"/campaigns/{campaign_id}", lambda row: row["status"] == "completed")
    new_walker = Walker(server, full)
    new_walker.object_ids = things | {"campaigns": campaign_id}
    new_walker.sign_in()
    yield new_walker
    new_walker.wire.close()


def check_failures(walker: Walker) -> None:
    """Fail with all failed requests and the tracebacks of the log."""
    traces = re.findall(r"(?s)Traceback.{0,3000}?\n\S*(?:Error|Exception)\S*.*?\n", walker.server.output)
    assert walker.failures == [] and traces == [], "\n".join([*walker.failures[:200], *dict.fromkeys(traces[:40])])


def readable_routes() -> list[str]:
    """Return the paths of all GET routes."""
    return [path for path, methods in list_routes() if "GET" in methods and not _SLOW.search(path)]


@pytest.mark.full
def test_head_is_answered_like_get(walker: Walker) -> None:
    """Every GET route also has HEAD, with the same status and headers and without content (RFC 9110, section 9.3.2)."""
    routes = readable_routes()
    assert len([route for route in routes if not route.startswith("/v1")]) > 100
    for route in routes:
        path = fill_existing(route, walker.object_ids)
        credentials = walker.credentials(path)
        # Without credentials nearly all routes give the same response, so that some of them are a sample
        for headers in {credentials, ""} if walker.full or walker.random.random() < 0.2 else {credentials}:
            get = walker.read(path) if headers else walker.send("GET", path)
            head = walker.send("HEAD", path, headers)
            assert get is not None and head is not None, path
            assert (head.status, head.body) == (get.status, b""), path
            for name in ("content-type", "location", "cache-control"):
                assert head.headers[name] == get.headers[name], (path, name)
            assert ("content-length" in head.headers) == ("content-length" in get.headers), path
    check_failures(walker)


def test_malformed_reads(walker: Walker) -> None:
    """Malformed GET requests to a route, with and without credentials, cause no 5xx."""
    for route in thin_out(readable_routes(), 6):
        path = fill_existing(route, walker.object_ids)
        credentials = walker.credentials(path)
        page = walker.read(path)
        text = page.body.decode("utf-8", "replace") if page is not None else ""
        walker.names |= set(re.findall(r'\bname="([\w.\[\]-]{1,60})"', text))
        walker.send("GET", path, f"{credentials}\r\n{HEADERS[0]}")
        for target, headers in walker.sample(
            ((path, ""), (path, HEADERS[0]), (f"{path}/", ""), (f"{path}/", credentials))
        ):
            walker.send("GET", target, headers)
        ids = {element_id.replace("-", "_") for element_id in re.findall(r'\bid="([\w-]+)"', text)}
        blocks = tuple(sorted(walker.blocks & (ids | {"content", "title"}))) if not route.startswith("/v1") else ()
        for block in walker.sample(blocks):
            walker.send("GET", path, f"{credentials}\r\nHX-Request: true\r\nHX-Target: div#{block.replace('_', '-')}")
        for target in walker.sample(tuple(shapes(path))):
            walker.send("GET", target, walker.random.choice([credentials, ""]))
        for headers in walker.sample(HEADERS[1:]):
            walker.send("GET", path, f"{credentials}\r\n{headers}" if "Authorization" not in headers else headers)
        for query in walker.sample(QUERIES):
            walker.send("GET", f"{path}{query}", credentials)
        for method in walker.sample(METHODS):
            if method not in ("DELETE", "PUT"):
                walker.send(method, path, credentials)
        for value in walker.sample(IDS) if "<" in route else ():
            walker.send("GET", fill_parameters(route, value), credentials)
    for target in ("*", "", "http://", "http://evil", "//", "///", "/" * 5000, "?", "/?", "#", "/%", "evil:80", "\xff"):
        for method in ("GET", "OPTIONS", "CONNECT", "POST"):
            walker.send(method, target)
            walker.send(method, target, walker.cookie)
    check_failures(walker)


def test_thousands_of_trailing_slashes(walker: Walker) -> None:
    """A path with 8,000 trailing slashes gets the same response as without them."""
    for path in ("/", "/contacts", "/nothing", "/v1/my/contacts", "/v1/my/nothing"):
        plain, slashed = (walker.send("GET", path + slashes, walker.credentials(path)) for slashes in ("", "/" * 8_000))
        assert plain is not None and slashed is not None and plain.status == slashed.status < 500, path
    check_failures(walker)


def bodies(walker: Walker) -> Iterator[tuple[str, bytes]]:
    """Yield (content type, body) of forms with invalid values in all known fields."""
    yield FORM, b""
    for value in walker.sample(VALUES):
        text = quote_plus(value.encode("utf-8", "surrogatepass"))
        yield FORM, "&".join(f"{quote_plus(name)}={text}" for name in sorted(walker.names)).encode()
    mixed = [(name, walker.random.choice(VALUES)) for name in sorted(walker.names) for _ in range(2)]
    yield (
        FORM,
        "&".join(
            f"{quote_plus(name)}={quote_plus(value.encode('utf-8', 'surrogatepass'))}" for name, value in mixed
        ).encode(),
    )


def test_malformed_writes(walker: Walker) -> None:
    """Bodies of wrong types, or with invalid values in all known fields, cause no 5xx."""
    writing = [
        (path, method) for path, methods in list_routes() for method in methods
        if method in ("POST", "PATCH", "PUT", "DELETE") and not _SLOW.search(path)
    ]  # fmt: skip
    writing.sort(
        key=lambda route_and_method: (bool(_ENDS.search(route_and_method[0])), route_and_method[1] == "DELETE")
    )
    same_origin = "Sec-Fetch-Site: same-origin"
    for route, method in thin_out(writing, 6):
        path = fill_existing(route, walker.object_ids)
        walker.send(method, path)
        for headers in walker.sample(HEADERS):
            walker.send(method, f"{path}/", f"{same_origin}\r\n{headers}", b"a=b")
        fields, others = list(bodies(walker)), list(BROKEN_BODIES)
        for content_type, body in [*fields, *(others if walker.full else walker.random.sample(others, 2))]:
            htmx_headers = walker.random.choice(["", "\r\nHX-Request: true\r\nHX-Target: div#nobody"])
            response = walker.send(
                method,
                path,
                f"{walker.credentials(path)}\r\n{same_origin}\r\nContent-Type: {content_type}{htmx_headers}",
                body,
            )
            if response is not None and (response.status == 401 or "/login" in (response.headers["Location"] or "")):
                walker.sign_in()
        for value in walker.sample(IDS) if "<" in route else ():
            walker.send(
                method,
                fill_parameters(route, value),
                f"{walker.credentials(path)}\r\n{same_origin}\r\nContent-Type: {FORM}",
                b"a=b",
            )
    check_failures(walker)
