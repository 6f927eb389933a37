"""No write of the web interface can begin on another site, and no cookie works for the API (T16).

The tests are driven by the route table.
"""

import http.client
import re

import apsw

from tests.api.test_threats_pages import Visitor
from tests.kit.openapi_document import OpenApiDocument
from tests.kit.routes import page_routes
from tests.kit.sampling import thin_out
from tests.kit.server import Server

# The tables that such a write would change; other tables are changed by the service itself, as is the setting with how
# far it has stored the time zones of contacts
TABLES = (
    "account", "user", "session", "api_key", "setting", "brand", "contact", "channel", "contact_list", "segment",
    "template", "campaign", "flow", "webhook", "suppression", "form", "sending_domain", "audit", "import",
)  # fmt: skip
# All combinations of these headers are tested in `test_guard`
FOREIGN = ({"Sec-Fetch-Site": "cross-site", "Origin": "{own}"}, {"Origin": "https://evil.example"})


def table_rows(server: Server) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of the tables of users' data."""
    connection = apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(10_000)
    existing_tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert len(existing_tables & set(TABLES)) > 15
    columns = "SELECT group_concat(name) FROM pragma_table_info(?) WHERE name NOT LIKE 'last_%'"
    rows = {}
    for table in sorted(existing_tables & set(TABLES)):
        names = ", ".join(f'"{name}"' for name in str(connection.execute(columns, (table,)).fetchone()[0]).split(","))
        condition = "WHERE name <> 'contact_zones'" if table == "setting" else ""
        rows[table] = connection.execute(f'SELECT {names} FROM "{table}" {condition}').fetchall()
    connection.close()
    return rows


def test_cross_site_forms_are_rejected(server: Server) -> None:
    """Each form, sent from another site with the owner's cookie, returns 403 and changes nothing.

    The forms are sent with the headers of one browser or the other in turn, and with `--full` with both.
    """
    api = server.client()
    api.post("/campaigns", {"name": "Letter"}).expect(201)
    api.post("/contacts", {"email": "one@example.org"}).expect(201)
    owner = Visitor(server, "owner@example.com")
    before, request_count = table_rows(server), 0
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    writes = [(method, path) for method, path in page_routes() if method not in ("GET", "HEAD", "OPTIONS")]
    for number, (method, path) in enumerate(writes):
        target = re.sub(r"<[^>]+>", "title", re.sub(r"<\w+:int>", "1", path))
        for site_headers in thin_out(FOREIGN, 2, number % 2):
            headers = {name: value.format(own=server.url) for name, value in site_headers.items()}
            headers |= {"Cookie": owner.cookie, "Content-Type": "application/x-www-form-urlencoded"}
            connection.request(method, target, b"name=evil&email=evil%40example.org&act=delete&ids=1&stop=1", headers)
            response = connection.getresponse()
            response.read()
            assert response.status == 403, (method, path, site_headers)
            assert not [name for name in response.headers if name.lower().startswith("access-control")]
            request_count += 1
        # Links and images lead to a GET, which must change nothing
        connection.request("GET", target, headers={"Cookie": owner.cookie, "Sec-Fetch-Site": "cross-site"})
        connection.getresponse().read()
    connection.close()
    assert request_count > 150
    assert table_rows(server) == before


def test_a_cookie_has_no_api_access(server: Server) -> None:
    """Each API operation returns 401 for the owner's cookie, without CORS headers."""
    owner = Visitor(server, "owner@example.com")
    before, request_count = table_rows(server), 0
    headers = {"Cookie": owner.cookie, "Sec-Fetch-Site": "same-origin", "Origin": server.url}
    for operation in OpenApiDocument(server.client()).operations():
        path = re.sub(r"\{\w+\}", "1", operation.path)
        response = owner.api.request(operation.method, path, b"{}" if operation.method != "GET" else None, headers)
        assert response.status == 401, operation
        assert not [name for name in response.headers if name.lower().startswith("access-control")]
        request_count += 1
    assert request_count > 100
    assert table_rows(server) == before


def test_pages_cannot_be_framed(server: Server) -> None:
    """The policy of pages, also of the sign-in page, forbids frames (clickjacking; T16)."""
    owner = Visitor(server, "owner@example.com")
    for path in ("/login", "/", "/settings/keys", "/nowhere"):
        policy = owner.send("GET", path).headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy and "'unsafe-inline'" not in policy
