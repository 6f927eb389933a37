"""The stop switch on the pages: who may use it, and the banner on every page."""

from tests.conftest import FreshServer
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD
from tests.ui.test_roles import request_page, session_cookie


def test_stopping_and_resuming(fresh_server: FreshServer) -> None:
    """A button stops sending with a reason that every page shows, another resumes; a STOP file is shown too."""
    server = fresh_server()
    api = server.client()
    page = HtmlPage(ScriptlessBrowser(api), "/settings")
    page.fill("Reason", "wrong <b>prices</b>")
    page = page.press("Stop all sending")
    assert page.texts("#sending .pill") == ["Sending stopped"]
    stopped = api.get("/account").expect(200)
    assert (stopped["sending_stopped"], stopped["stop_reason"]) == (True, "wrong <b>prices</b>")
    for path in ("/", "/campaigns", "/contacts"):
        page = HtmlPage(page.user, path)
        assert page.has(".banner", "Sending is stopped: wrong <b>prices</b>"), path
    page = page.follow("Resume sending").press("Resume sending")
    assert page.texts("#sending .pill") == ["Sending on"] and not page.all(".banner")
    assert api.get("/account").expect(200)["sending_stopped"] is False
    (server.data / "STOP").touch()
    assert HtmlPage(page.user, "/").has(".banner", "a file named STOP")


def test_access_to_the_stop_switch(fresh_server: FreshServer) -> None:
    """An editor gets a 403 for the form, an admin does not."""
    server = fresh_server()
    for role, status in (("editor", 403), ("admin", 303)):
        server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=PASSWORD + "\n")
        cookie = session_cookie(server, f"{role}@example.org")
        assert request_page(server, "POST", "/settings/stop", cookie, stop="1", stop_reason="x")[0] == status
        assert server.client().get("/account").expect(200)["sending_stopped"] is (status == 303)
