"""Before very many people are written to, their number is typed."""

import re

from tests.conftest import FreshServer
from tests.kit.crowd import fill
from tests.kit.paper import Paper


def test_many_people_want_their_number_typed(fresh_server: FreshServer) -> None:
    """Over 1,000 the question asks for the number; a wrong one is refused and stays there, the right one sends."""
    server = fresh_server(start=False)
    fill(server.data / "campanero.db", 1_001, share=1)
    server.start()
    api = server.client()
    said = {"template_attributes": {"subject": "News", "body": "<p>Hello</p>"},
            "trigger_attributes": {"contact_list_id": 1}}  # fmt: skip
    here = f"/campaigns/{api.post('/campaigns', {'name': 'Many', **said}).expect(201)['id']}/send"
    paper = Paper(api)
    asked = paper.get(here)
    assert "Send to 1\u202f001 people?" in asked and "Type 1\u202f001 to be sure" in asked
    for typed in ("100", ""):
        refused = paper.post(here, expected="1001", typed=typed)
        assert "Type 1\u202f001 to send to that many people." in refused
        field = re.search(r'<input[^>]*name="typed"[^>]*>', refused)
        assert field is not None and f'value="{typed}"' in field[0] and 'aria-invalid="true"' in field[0]
    assert api.get("/campaigns").expect(200)[0]["status"] == "draft"
    paper.post(here, expected="1001", typed="1 001")
    sent = api.get("/campaigns").expect(200)[0]
    assert (sent["status"], sent["stats"]["audience"]) == ("active", 1_001)
