"""Ids above a million and with many digits, as after large imports or a restore, mean their own objects on pages."""

import sqlite3
from contextlib import closing

from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.server import EMAIL


def test_pages_take_ids_of_any_size(fresh_server: FreshServer, full: bool) -> None:
    """Merging, consent and tests shown as a contact concern this contact, and never the one with another id."""
    server = fresh_server(start=False)
    server.start().stop()
    for first_id in (999_999, 1_234_566, 1_795_000_000_000) if full else (999_999, 1_795_000_000_000):
        with closing(sqlite3.connect(server.data / "campanero.db")) as database, database:
            database.execute("DELETE FROM sqlite_sequence WHERE name IN ('contact', 'channel', 'message')")
            names = [(name, first_id) for name in ("contact", "channel", "message")]
            database.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", names)
        api = server.start().client()
        email = f"c{first_id + 1}@example.org"
        created = api.post("/contacts", {"email": email, "first_name": f"N{first_id + 1}"}).expect(201)
        assert created["id"] == first_id + 1
        if first_id != 999_999:
            other = api.post("/contacts", {"email": f"other{first_id}@example.org"}).expect(201)
            page, (channel,) = Visitor(server, EMAIL), created["channels"]
            review = page.send("GET", f"/contacts/{other['id']}/merge?with={created['id']}").text
            assert email in review and "c1000000@example.org" not in review
            assert page.send("POST", f"/contacts/{created['id']}/consent", {"channel": channel["id"]}).status == 303
            assert api.get(f"/contacts/{created['id']}").expect(200)["subscribed_email"] is False
            letter = {"subject": "For {{ contact.first_name }}", "body": "<p>x</p>"}
            template = api.post("/templates", {"name": "T", **letter}).expect(201)["id"]
            form = {"emails": EMAIL, "as": created["id"], **letter}
            assert page.send("POST", f"/templates/{template}/test", form).status in (200, 303)
            [test] = api.wait(
                "/messages", lambda rows: bool(rows) and rows[0]["status"] == "sent", source_type="test", limit=1
            )
            assert test["subject"] == f"[Test] For N{first_id + 1}"
            assert page.send("POST", f"/contacts/{other['id']}/merge", {"with": created["id"]}).status == 303
            assert api.get(f"/contacts/{created['id']}").status == 404
            assert api.get("/contacts/1000000").expect(200)["first_name"] == "N1000000"
        server.stop()
