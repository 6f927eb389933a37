"""A download that is running when its client loses access ends before its end, visibly incomplete (T12, T15)."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator

import apsw
import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.api_users import add_user, user_client
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.client import Client
from tests.kit.server import PASSWORD, Server

# Several pages of rows that no buffer between server and client holds.
CONTACTS, AUDIT_ENTRIES, TEXT = 1_600, 1_600, "x" * 10_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with large contacts and a large audit log."""
    with Server() as running:
        running.set_up()
        running.stop()
        path = running.data / "campanero.db"
        insert_contacts(path, CONTACTS)
        database = apsw.Connection(str(path))
        database.execute("UPDATE contact SET data = ?", (json.dumps({"note": TEXT}),))
        database.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO audit (account_id, actor, action, data, created_at) SELECT 1, 'user:1', 'export', ?, i FROM n",
            (AUDIT_ENTRIES, json.dumps({"note": TEXT})),
        )
        database.close()
        running.start()
        yield running
        running.stop()


def download(server: Server, path: str, headers: dict[str, str], after_start: Callable[[], object]) -> tuple[int, bool]:
    """Download a file, call `after_start` after its first bytes, and return (row count, whether the file is whole)."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.sock = socket.socket()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connection.sock.settimeout(30)
    connection.sock.connect(("127.0.0.1", server.port))
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    content, is_whole = response.read(1_000), True
    after_start()
    time.sleep(0.5)
    try:
        while piece := response.read(100_000):
            content += piece
    except (http.client.IncompleteRead, ConnectionResetError):
        is_whole = False
    connection.close()
    return content.count(TEXT.encode()), is_whole


def bearer(client: Client) -> dict[str, str]:
    """Return the header with a client's credential."""
    return {"Authorization": f"Bearer {client.key}"}


def user_id(owner: Client, email: str) -> int:
    """Return the id of a user."""
    return next(int(user["id"]) for user in owner.all("/users") if user["email"] == email)


def test_a_slow_download_is_whole(server: Server) -> None:
    """A client that reads slowly and keeps its access gets all rows, over the API and as a page."""
    api, visitor = server.client(server.new_key()), Visitor(server, "owner@example.com")
    assert download(server, "/v1/my/exports/contacts.jsonl", bearer(api), int) == (CONTACTS, True)
    path = "/exports/contacts/file?format=csv"
    assert download(server, path, {"Cookie": visitor.cookie}, int) == (CONTACTS, True)


@pytest.mark.parametrize("name", ["contacts.jsonl", "contacts.csv"])
def test_a_revoked_key_ends_its_download(server: Server, owner: Client, name: str) -> None:
    """An export ends after its key is revoked, and the log says why without a traceback."""
    key = owner.post("/api_keys", {"name": "export", "scope": "contacts:read"}).expect(201)
    client = server.client(key["key"])
    count, is_whole = download(
        server, f"/v1/my/exports/{name}", bearer(client), lambda: owner.delete(f"/api_keys/{key['id']}").expect(200)
    )
    assert count < CONTACTS * 3 / 4 and not is_whole
    server.wait_for_line("response aborted .*: the credential of the download is no longer valid")
    assert "Traceback" not in server.output


def test_a_disabled_user_ends_downloads(server: Server, owner: Client) -> None:
    """Exports of a user end after the user is disabled, over the API and as a page."""
    for number, is_page in enumerate((False, True)):
        client = add_user(server, "viewer", name=f"leaving{number}")
        visitor = Visitor(server, f"leaving{number}@example.org")
        path = "/exports/contacts/file?format=jsonl" if is_page else "/v1/my/exports/contacts.jsonl"
        headers = {"Cookie": visitor.cookie} if is_page else bearer(client)
        number_of_user = user_id(owner, f"leaving{number}@example.org")
        count, is_whole = download(
            server,
            path,
            headers,
            lambda: owner.patch(f"/users/{number_of_user}", {"disabled": True}).expect(200),  # noqa: B023 - called before the next turn
        )
        assert count < CONTACTS * 3 / 4 and not is_whole, path


def test_signing_out_ends_downloads(server: Server) -> None:
    """An export as a page ends after its session ends."""
    visitor = Visitor(server, "owner@example.com")
    count, is_whole = download(
        server, "/exports/contacts/file?format=excel", {"Cookie": visitor.cookie},
        lambda: visitor.send("POST", "/logout"),
    )  # fmt: skip
    assert count < CONTACTS * 3 / 4 and not is_whole


def test_a_lower_role_ends_downloads(server: Server, owner: Client) -> None:
    """A download of the audit log ends when its user is an admin no longer."""
    add_user(server, "admin", name="lowered")
    visitor = Visitor(server, "lowered@example.org")
    number = user_id(owner, "lowered@example.org")
    count, is_whole = download(
        server, "/settings/audit/audit.csv", {"Cookie": visitor.cookie},
        lambda: owner.patch(f"/users/{number}", {"role": "editor"}).expect(200),
    )  # fmt: skip
    assert count < AUDIT_ENTRIES * 3 / 4 and not is_whole


def test_a_role_that_may_no_longer_export_ends_downloads(server: Server, owner: Client) -> None:
    """An export ends when its user loses the right to export, although the scope of the endpoint is still there."""
    role = {"name": "Agency", "scopes": ["contacts:read", "contacts:export"], "contact_data": "full"}
    role_id = owner.post("/roles", role).expect(201)["id"]
    owner.post("/users", {"email": "agency@example.org", "role": str(role_id), "password": PASSWORD}).expect(201)
    headers = bearer(user_client(server, "agency@example.org"))
    masked = {"scopes": ["contacts:read"], "contact_data": "masked"}
    count, is_whole = download(
        server, "/v1/my/exports/contacts.jsonl", headers, lambda: owner.patch(f"/roles/{role_id}", masked).expect(200)
    )
    assert count < CONTACTS * 3 / 4 and not is_whole


@pytest.fixture(scope="module")
def owner(server: Server) -> Client:
    """Return a client with the token of the owner."""
    return add_user(server, "owner", name="second")
