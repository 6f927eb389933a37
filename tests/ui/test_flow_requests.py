"""The page of the HTTP requests of a flow that wait or are tried again."""

from pathlib import Path

import apsw

from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server
from tests.kit.shared_clock import clock, server
from tests.kit.webhook_receiver import Receiver

__all__ = ["clock", "server"]
SERVER_ENV = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}


def test_a_failing_request_is_listed_and_retried(api: Client, server: Server, tmp_path: Path) -> None:
    """The list says why a request is tried again and when; the button makes it at once, and audits it."""
    browser = ScriptlessBrowser(api)
    with Receiver(tmp_path) as receiver:
        receiver.respond_with(503, "{}")
        steps = [{"type": "http_request", "url": receiver.url, "timeout": 86_400, "yes": [], "no": []}]
        body = {"name": "Stock", "trigger": {"event": "sold"}, "steps": steps, "status": "active"}
        flow = api.post("/flows", body).expect(201)
        path = f"/flows/{flow['id']}/requests"
        assert "No pending requests" in HtmlPage(browser, path).text
        assert HtmlPage(browser, f"/flows/{flow['id']}").has("a", "View HTTP requests")
        contact = {"contact_email": "ana@example.org", "create_contact": True}
        api.post("/events", {"event": "sold", **contact}).expect(201)
        page = HtmlPage(browser, path).reload_until("Retrying", 20)
        assert "1 request waits or is tried again." in page.text
        assert "Failed requests" in page.text  # where those are that failed for good
        assert "No requests selected." in page.press("Retry now").text
        receiver.respond_with(200, "{}")
        page.check("Select ana@example.org")
        assert "1 request is made now." in page.press("Retry now").text
        api.wait(f"/flows/{flow['id']}/runs", lambda rows: rows[0]["status"] == "completed", 20)
    assert "No pending requests" in HtmlPage(browser, path).text
    assert "Retried HTTP requests of a flow" in HtmlPage(browser, "/settings/audit").text


def test_requests_of_another_flow_are_left_alone(api: Client, server: Server) -> None:
    """Ids of requests count only in their own flow, and unknown flows have no page."""
    browser = ScriptlessBrowser(api)
    steps = [{"type": "http_request", "url": "http://127.0.0.1:9/closed", "timeout": 86_400, "yes": [], "no": []}]
    flows = [
        api.post("/flows", {"trigger": {"event": f"e{number}"}, "steps": steps, "status": "active"}).expect(201)["id"]
        for number in range(2)
    ]
    api.post("/events", {"event": "e0", "contact_email": "b@example.org", "create_contact": True}).expect(201)
    HtmlPage(browser, f"/flows/{flows[0]}/requests").reload_until("Retrying", 20)
    with apsw.Connection(str(server.data / "campanero.db"), flags=apsw.SQLITE_OPEN_READONLY) as database:
        sql = "SELECT id, next_attempt_at FROM flow_request WHERE flow_id = ?"
        before = database.execute(sql, (flows[0],)).fetchall()
        shown = browser.post(f"/flows/{flows[1]}/requests/retry", request_ids=str(before[0][0]))
        assert "These requests have been made already." in shown
        after = database.execute(sql, (flows[0],)).fetchall()
        assert after[0][0] == before[0][0]
        assert after[0][1] >= before[0][1]  # an attempt that failed meanwhile is tried again later
    assert browser.status("GET", "/flows/999/requests") == 404
