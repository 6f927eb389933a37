"""T16: no write of the web interface begins on another site, and no cookie opens the API. Driven by the route table."""

import http.client
import re

import apsw

from tests.api.test_threats_pages import Visitor
from tests.kit.routes import of_pages
from tests.kit.server import Server
from tests.kit.walk import Walk

# What would have changed; what the service writes by itself is not among it
TABLES = (
    "account", "user", "session", "api_key", "setting", "brand", "contact", "channel", "contact_list", "segment",
    "template", "campaign", "flow", "webhook", "suppression", "form", "sending_domain", "audit", "import",
)  # fmt: skip
# The whole matrix of what a browser says is in `test_guard`
FOREIGN = ({"Sec-Fetch-Site": "cross-site", "Origin": "{own}"}, {"Origin": "https://evil.example"})


def kept(server: Server) -> dict[str, list[tuple[object, ...]]]:
    """Return every row of what people and programs make."""
    here = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    here.set_busy_timeout(10_000)
    there = {row[0] for row in here.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert len(there & set(TABLES)) > 15
    columns = "SELECT group_concat(name) FROM pragma_table_info(?) WHERE name NOT LIKE 'last_%'"
    found = {}
    for table in sorted(there & set(TABLES)):
        names = ", ".join(f'"{name}"' for name in str(here.execute(columns, (table,)).fetchone()[0]).split(","))
        found[table] = here.execute(f'SELECT {names} FROM "{table}"').fetchall()
    here.close()
    return found


def test_no_write_begins_elsewhere(server: Server) -> None:
    """Each form of each page, sent from another site with the owner's cookie, is 403 and changes nothing."""
    api = server.client()
    api.post("/campaigns", {"name": "Letter"}).expect(201)
    api.post("/contacts", {"email": "one@example.org"}).expect(201)
    owner = Visitor(server, "owner@example.com")
    before, walked = kept(server), 0
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for method, path in of_pages():
        if method in ("GET", "HEAD", "OPTIONS"):
            continue
        here = re.sub(r"<[^>]+>", "title", re.sub(r"<\w+:int>", "1", path))
        for said in FOREIGN:
            headers = {name: value.format(own=server.url) for name, value in said.items()}
            headers |= {"Cookie": owner.cookie, "Content-Type": "application/x-www-form-urlencoded"}
            connection.request(method, here, b"name=evil&email=evil%40example.org&act=delete&ids=1&stop=1", headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 403, (method, path, said)
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
            walked += 1
        # A link or a picture that leads there asks by GET: none of these answers it with anything done
        connection.request("GET", here, headers={"Cookie": owner.cookie, "Sec-Fetch-Site": "cross-site"})
        connection.getresponse().read()
    connection.close()
    assert walked > 200
    assert kept(server) == before


def test_a_cookie_opens_no_api(server: Server) -> None:
    """Every operation of the document answers the cookie of an owner with 401, and no page may read its answers."""
    owner = Visitor(server, "owner@example.com")
    before, walked = kept(server), 0
    headers = {"Cookie": owner.cookie, "Sec-Fetch-Site": "same-origin", "Origin": server.url}
    for one in Walk(server.client()).operations():
        path = re.sub(r"\{\w+\}", "1", one.path)
        answer = owner.api.request(one.method, path, b"{}" if one.method != "GET" else None, headers)
        assert answer.status == 401, one
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        walked += 1
    assert walked > 100
    assert kept(server) == before


def test_the_page_that_signs_in_is_in_no_frame(server: Server) -> None:
    """Nor is any other: nobody clicks through a picture of somebody else's (T16)."""
    owner = Visitor(server, "owner@example.com")
    for path in ("/login", "/", "/settings/keys", "/nowhere"):
        policy = owner.send("GET", path).headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy and "'unsafe-inline'" not in policy
