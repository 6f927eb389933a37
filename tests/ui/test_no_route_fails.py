"""Whatever is asked of whichever route, nobody gets a 5xx and the log has no traceback.

Every route that the router knows is walked with slashes, methods, ids, headers and fields that no browser and no
program of ours sends. By default each route gets the shapes that have failed before and a sample of the others; with
`--full` every route gets all of them.
"""

import random
import re
from collections.abc import Iterator
from urllib.parse import quote_plus

import pytest

from tests.kit.routes import declared
from tests.kit.server import EMAIL, PASSWORD, ROOT, Server
from tests.kit.tenants import Tenant
from tests.kit.wire import Answer, Wire

MAX_SAMPLE = 2
FORM = "application/x-www-form-urlencoded"
# Ends what others still need: walked after everything else
_ENDS = re.compile(r"delete|logout|password|otp|sessions|erase|close|clear|stop|revoke|discard|cancel|undo|/role")
# Starts a process of its own or asks other machines, which is tested elsewhere
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


def shapes(path: str) -> Iterator[str]:
    """Yield a path with slashes and other things where none belong."""
    yield from (f"{path}/", f"{path}//", f"/{path}", path.replace("/", "//"), f"{path}/.", f"{path};x=1", f"{path}%00")
    yield from (f"{path}%2f", f"{path}/%ff", f"{path}.", path.upper(), f"http://evil.example{path}/", f"{path}/x/")


class Walker:
    """Somebody who asks for everything, signed in, with a key, or as nobody."""

    def __init__(self, server: Server, full: bool) -> None:
        self.server, self.full = server, full
        self.random = random.Random(20_261_123)
        self.wire = Wire(server.port)
        self.asked, self.failed = 0, list[str]()
        self.cookie = ""
        self.names: set[str] = {"page", "ids", "id", "name"}
        self.blocks = {
            name for file in (ROOT / "ui" / "html").rglob("*.html")
            for name in re.findall(r"{%-? block (\w+)", file.read_text())
        }  # fmt: skip

    def sample(self, choices: tuple[str, ...]) -> list[str]:
        """Return all of some choices, or a few."""
        return list(choices) if self.full else self.random.sample(choices, min(MAX_SAMPLE, len(choices)))

    def sign_in(self) -> None:
        """Sign in as the owner and keep the cookie."""
        body = f"email={quote_plus(EMAIL)}&password={quote_plus(PASSWORD)}".encode()
        answer = self.send("POST", "/login", f"Content-Type: {FORM}\r\nSec-Fetch-Site: same-origin", body)
        assert answer is not None and answer.status == 303, answer
        self.cookie = "Cookie: " + "; ".join(
            one.partition(";")[0] for one in answer.headers.get_all("set-cookie") or []
        )

    def who(self, path: str) -> str:
        """Return the header with which a path is allowed."""
        has_key = path.startswith(("/v1", "/metrics"))
        return f"Authorization: Bearer {self.server.key}" if has_key else self.cookie

    def send(self, method: str, target: str, headers: str = "", body: bytes = b"") -> Answer | None:
        """Send one request and note a failure; None where there was no answer."""
        lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *filter(None, headers.split("\r\n"))]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        request = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body
        self.asked += 1
        try:
            answer = self.wire.ask(request, method)
        except (OSError, ValueError) as error:
            self.failed.append(f"{method} {target[:200]} [{headers[:300]}] {body[:200]!r}: {error!r}")
            self.wire.close()
            return None
        if answer.status >= 500:
            self.failed.append(f"{method} {target[:200]} [{headers[:300]}] {body[:200]!r}: {answer.status}")
        return answer


def filled(path: str, value: str) -> str:
    """Return the path of a route with a value for each of its parameters."""
    return re.sub(r"<[^>]+>", lambda _: value, path)


def filling(path: str, things: dict[str, int]) -> str:
    """Return the path of a route on things that are there."""
    noun = path.removeprefix("/v1/my").strip("/").partition("/")[0]
    first = str(things.get(noun, 1))
    return re.sub(r"<(\w+):?\w*>", lambda found: first if found[1] in ("number", f"{noun[:-1]}_id") else "1", path)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Return a server where one may sign in as often as one is signed out."""
    with Server(env={"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "100000"}).set_up() as running:
        yield running
        running.stop()


@pytest.fixture(scope="module")
def walker(server: Server, full: bool) -> Iterator[Walker]:
    """Return a walker for an account with one of everything in it, some of it sent."""
    tenant = Tenant(server.client()).furnish("alpha")
    api, things = tenant.api, tenant.things
    content = {"subject": "Hi", "body": '<p><a href="https://example.org/x">x</a></p>'}
    sent = api.post("/campaigns", {"name": "Sent", "template_attributes": content}).expect(201)["id"]
    trigger = {"contact_list_id": things["lists"]}
    api.post(f"/campaigns/{sent}/send", {"trigger_attributes": trigger}).expect(200)
    api.wait(f"/campaigns/{sent}", lambda row: row["status"] == "completed")
    made = Walker(server, full)
    made.things = things | {"campaigns": sent}
    made.sign_in()
    yield made
    made.wire.close()


def check(walker: Walker) -> None:
    """Fail with every request that failed, and with what the log says of it."""
    traces = re.findall(r"(?s)Traceback.{0,3000}?\n\S*(?:Error|Exception)\S*.*?\n", walker.server.output)
    assert walker.failed == [] and traces == [], "\n".join([*walker.failed[:200], *dict.fromkeys(traces[:40])])


def reading() -> list[str]:
    """Return the paths of all routes that are read."""
    return [path for path, methods in declared() if "GET" in methods and not _SLOW.search(path)]


def test_reading_any_route_in_any_shape(walker: Walker) -> None:
    """Slashes, methods, ids, headers and queries: signed in, with a key, and as nobody."""
    for route in reading():
        path = filling(route, walker.things)
        who = walker.who(path)
        page = walker.send("GET", path, who)
        text = page.body.decode("utf-8", "replace") if page is not None else ""
        walker.names |= set(re.findall(r'\bname="([\w.\[\]-]{1,60})"', text))
        walker.send("GET", path)
        walker.send("HEAD", path, who)
        walker.send("GET", f"{path}/")
        walker.send("GET", f"{path}/", who)
        walker.send("GET", path, f"{who}\r\n{HEADERS[0]}")
        walker.send("GET", path, HEADERS[0])
        ids = {found.replace("-", "_") for found in re.findall(r'\bid="([\w-]+)"', text)}
        for block in sorted(walker.blocks & (ids | {"content", "title"})) if not route.startswith("/v1") else ():
            walker.send("GET", path, f"{who}\r\nHX-Request: true\r\nHX-Target: div#{block.replace('_', '-')}")
        for target in walker.sample(tuple(shapes(path))):
            walker.send("GET", target, walker.random.choice([who, ""]))
        for headers in walker.sample(HEADERS[1:]):
            walker.send("GET", path, f"{who}\r\n{headers}" if "Authorization" not in headers else headers)
        for query in walker.sample(QUERIES):
            walker.send("GET", f"{path}{query}", who)
        for method in walker.sample(METHODS):
            if method not in ("DELETE", "PUT"):
                walker.send(method, path, who)
        for value in walker.sample(IDS) if "<" in route else ():
            walker.send("GET", filled(route, value), who)
    for target in ("*", "", "http://", "http://evil", "//", "///", "/" * 5000, "?", "/?", "#", "/%", "evil:80", "\xff"):
        for method in ("GET", "OPTIONS", "CONNECT", "POST"):
            walker.send(method, target)
            walker.send(method, target, walker.cookie)
    check(walker)


def test_thousands_of_slashes_are_one(walker: Walker) -> None:
    """A path that ends with them is found without them; the library alone would ask again for each, and give up."""
    for path in ("/", "/contacts", "/nothing", "/v1/my/contacts", "/v1/my/nothing"):
        one, many = (walker.send("GET", path + slashes, walker.who(path)) for slashes in ("", "/" * 8_000))
        assert one is not None and many is not None and one.status == many.status < 500, path
    check(walker)


def bodies(walker: Walker) -> Iterator[tuple[str, bytes]]:
    """Yield bodies that no form of ours sends, with their types."""
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
    yield FORM, b"%ff=%fe&\x00&==&a[b]=c&%00"
    for body in (b"[]", b"null", b"{", b'{"name": [], "ids": {}, "at": 1e999}', b"\xff"):
        yield "application/json", body
    yield "multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n\xff\r\n--x--'
    yield "multipart/form-data; boundary=x", b"--x\r\n\r\n"
    yield "text/plain", b"x"


def test_writing_to_any_route_in_any_shape(walker: Walker) -> None:
    """Bodies of the wrong type, with every field that any page has and values that none of them takes."""
    writing = [
        (path, method) for path, methods in declared() for method in methods
        if method in ("POST", "PATCH", "PUT", "DELETE") and not _SLOW.search(path)
    ]  # fmt: skip
    writing.sort(key=lambda one: (bool(_ENDS.search(one[0])), one[1] == "DELETE"))
    same = "Sec-Fetch-Site: same-origin"
    for route, method in writing:
        path = filling(route, walker.things)
        walker.send(method, path)
        for headers in walker.sample(HEADERS):
            walker.send(method, f"{path}/", f"{same}\r\n{headers}", b"a=b")
        for kind, body in bodies(walker):
            part = walker.random.choice(["", "\r\nHX-Request: true\r\nHX-Target: div#nobody"])
            answer = walker.send(method, path, f"{walker.who(path)}\r\n{same}\r\nContent-Type: {kind}{part}", body)
            if answer is not None and (answer.status == 401 or "/login" in (answer.headers["Location"] or "")):
                walker.sign_in()
        for value in walker.sample(IDS) if "<" in route else ():
            walker.send(method, filled(route, value), f"{walker.who(path)}\r\n{same}\r\nContent-Type: {FORM}", b"a=b")
    check(walker)
