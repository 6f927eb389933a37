"""The consent page of connected apps in a browser: accessible, and Connect really leads back to the app."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.kit import axe
from tests.kit.connected_app import ConnectedApp, answer_of
from tests.kit.sampling import full_only
from tests.kit.server import Server


def receive(requests: list[str]) -> HTTPServer:
    """Start a server of this computer that keeps the paths of its requests, as a native app does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            body = b"<!doctype html><title>Back</title><p>Back in the app"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


@pytest.mark.parametrize("width", [360, full_only(1280)])
def test_connect_leads_back_to_the_app(browser_page: Page, server: Server, width: int) -> None:
    """The policy of the page lets the browser follow the redirect to the app; the settings then list it."""
    page, requests = browser_page, list[str]()
    listener = receive(requests)
    try:
        app = ConnectedApp(server.url, redirect_uri=f"http://127.0.0.1:{listener.server_address[1]}/callback")
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(app.authorize_path())
        assert axe.find_violations(page) == []
        page.get_by_role("button", name="Connect").press("Enter")
        page.get_by_text("Back in the app").wait_for()
    finally:
        listener.shutdown()
        listener.server_close()
    path = next(path for path in requests if path.startswith("/callback?"))
    app.exchange(answer_of(path)["code"]).expect(200)
    page.goto("/settings/apps")
    assert axe.find_violations(page) == []
    page.get_by_role("button", name="Disconnect Helper").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
    page.get_by_text("“Helper” is disconnected.").wait_for()
