"""The stop switch on the pages: who may use it, and the banner on every page."""

import re

from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.server import PASSWORD
from tests.ui.test_roles import request_page, session_cookie


def test_stopping_and_resuming(browser: Browser, fresh_server: FreshServer, browser_problems: Problems) -> None:
    """A button stops sending with a reason that every page shows, another resumes; a STOP file is shown too."""
    server = fresh_server()
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto("/settings")
    page.get_by_label("Reason").fill("wrong <b>prices</b>")
    page.get_by_role("button", name="Stop all sending").click()
    expect(page.locator("#sending .pill")).to_have_text("Sending stopped")
    stopped = server.client().get("/account").expect(200)
    assert (stopped["sending_stopped"], stopped["stop_reason"]) == (True, "wrong <b>prices</b>")
    for path in ("/", "/campaigns", "/contacts"):
        page.goto(path)
        expect(page.locator(".banner")).to_contain_text("Sending is stopped: wrong <b>prices</b>")
    page.get_by_role("link", name="Resume sending").click()
    page.get_by_role("button", name="Resume sending").click()
    expect(page.locator("#sending .pill")).to_have_text("Sending on")
    expect(page.locator(".banner")).to_have_count(0)
    assert server.client().get("/account").expect(200)["sending_stopped"] is False
    (server.data / "STOP").touch()
    page.goto("/")
    expect(page.locator(".banner")).to_contain_text(re.compile("a file named STOP"))
    page.context.close()
    assert not browser_problems.found


def test_access_to_the_stop_switch(fresh_server: FreshServer) -> None:
    """An editor gets a 403 for the form, an admin does not."""
    server = fresh_server()
    for role, status in (("editor", 403), ("admin", 303)):
        server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=PASSWORD + "\n")
        cookie = session_cookie(server, f"{role}@example.org")
        assert request_page(server, "POST", "/settings/stop", cookie, stop="1", stop_reason="x")[0] == status
        assert server.client().get("/account").expect(200)["sending_stopped"] is (status == 303)
