"""Sending to very many contacts needs their number to be typed."""

import re

from tests.conftest import FreshServer
from tests.kit.bulk_contacts import insert_contacts
from tests.kit.scriptless_browser import ScriptlessBrowser


def test_typing_the_number_of_recipients(fresh_server: FreshServer) -> None:
    """Over 1,000 recipients the dialog asks for the number; a wrong one is an error, the right one sends."""
    server = fresh_server(start=False)
    insert_contacts(server.data / "campanero.db", 1_001, share=1)
    server.start()
    api = server.client()
    content = {"template_attributes": {"subject": "News", "body": "<p>Hello</p>"},
            "trigger_attributes": {"contact_list_id": 1}}  # fmt: skip
    send_url = f"/campaigns/{api.post('/campaigns', {'name': 'Many', **content}).expect(201)['id']}/send"
    paper = ScriptlessBrowser(api)
    dialog = paper.get(send_url)
    assert "Send to 1,001 contacts?" in dialog and "Type 1,001 to confirm" in dialog
    for typed in ("100", ""):
        rejected_page = paper.post(send_url, expected="1001", typed=typed)
        assert "Type 1,001, the number of recipients." in rejected_page
        field = re.search(r'<input[^>]*name="typed"[^>]*>', rejected_page)
        assert field is not None and f'value="{typed}"' in field[0] and 'aria-invalid="true"' in field[0]
    assert api.get("/campaigns").expect(200)[0]["status"] == "draft"
    paper.post(send_url, expected="1001", typed="1 001")
    sent = api.get("/campaigns").expect(200)[0]
    assert (sent["status"], sent["stats"]["audience"]) == ("active", 1_001)
