"""The backups page, and the page of a restored account before it sends."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, save_screenshot, sign_in
from tests.kit.html_page import HtmlPage, select, text_of
from tests.kit.recipients import CONTENT, create_list, send_campaign
from tests.kit.s3_server import REGION, S3Server
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server


@pytest.mark.full
def test_back_up_now(browser: Browser, fresh_server: FreshServer, browser_problems: Problems, tmp_path: Path) -> None:
    """The button creates a backup, which appears in the list and the audit log; a failure is shown."""
    server = fresh_server()
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto("/settings/data")
    expect(page.locator(".stat", has_text="Messages sent")).to_have_text("Messages sent0")
    page.get_by_role("link", name="Open backups").click()
    card = page.locator("#backups")
    expect(card).to_contain_text("Automatic backups are turned off")
    card.get_by_role("button", name="Back up now").click()
    expect(card.locator("tbody tr")).to_have_count(1)
    expect(card.get_by_role("button", name="Back up now")).to_be_enabled()
    expect(card.locator(".pill")).to_have_text("Available")
    save_screenshot(page, "backups")
    (server.data / "backups").rename(server.data / "elsewhere")
    (server.data / "backups").write_text("in the way")
    card.get_by_role("button", name="Back up now").click()
    expect(card.get_by_role("alert")).to_contain_text("The last backup failed")
    page.goto("/settings/audit")
    expect(page.locator("main tbody").get_by_text("Created a backup").first).to_be_visible()
    page.context.close()


def test_a_tested_connection_is_saved_without_typing_the_secret_again(
    browser: Browser, server: Server, browser_problems: Problems
) -> None:
    """The test leaves the form as it is, the secret included, whose field a new page would empty."""
    page = sign_in(new_page(browser, server.url, browser_problems))
    with S3Server() as s3:
        page.goto("/settings/backups/store")
        page.get_by_label("Service URL").fill(s3.url)
        page.get_by_label("Region").fill(REGION)
        page.get_by_label("Access key ID").fill(s3.access_key_id)
        page.get_by_label("Secret access key").fill("wrong")
        page.get_by_role("button", name="Test connection").click()
        expect(page.locator("#f-bucket-err")).to_contain_text("Enter the name of the bucket")
        page.get_by_role("textbox", name="Bucket").fill(s3.bucket)
        page.get_by_role("button", name="Test connection").click()
        expect(page.locator("#store .banner")).to_contain_text("The backup storage rejected the login")
        page.get_by_label("Secret access key").fill(s3.secret_access_key)
        page.get_by_role("button", name="Test connection").click()
        expect(page.locator("#store .banner")).to_contain_text("The connection works")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#copies .pill")).to_have_text("Not finished")
    page.context.close()


def test_a_restored_account(fresh_server: FreshServer, tmp_path: Path) -> None:
    """After a restore pages say that nothing is sent and list what would be; a button lets it go out."""
    server = restored_server(fresh_server, tmp_path)
    api = server.client()
    status = api.get("/delivery/status").expect(200)
    assert (status["sending_stopped"], status["stop_reason"]) == (True, "restored")
    blockers = [row for row in api.get("/account").expect(200)["blockers"] if row["code"] == "sending_stopped"]
    for text in (status["obstacles"][0]["text"], blockers[0]["message"]):
        assert "a backup was restored" in text and f"{server.url}/restored" in text
        assert "`sending_stopped: false`" in text
    user = ScriptlessBrowser(api)
    page = HtmlPage(user, "/").follow("Review messages")
    assert page.has("h1, h2", "Restored from a backup")
    row = page.one("tbody tr", "Letter")
    assert [text_of(cell) for cell in select(row, "td")[1:]] == ["0", "0", "40"]
    assert page.has("main", "Welcome")
    assert "Sending resumed." in page.press("Send the rest").text
    assert "No messages are on hold" in HtmlPage(user, "/restored").text
    server.client().wait("/campaigns/1", lambda campaign: campaign["status"] == "completed")
    check_sent_since(server, tmp_path)


def check_sent_since(server: Server, directory: Path) -> None:
    """Restore the same backup again, and check that its campaign is shown as sent after it."""
    server.stop()
    server.cli("restore", str(directory / "kept.tar.gz"), "--force")
    server.start()
    server.client().wait("/campaigns/1", lambda campaign: campaign["status"] == "completed")
    user = ScriptlessBrowser(server.client())
    page = HtmlPage(user, "/restored")
    assert page.has("main", "40 messages were sent after this backup. They count as sent and are not sent again")
    assert page.has("main", "What was sent between the backup and now is known")
    assert not page.has("main tbody tr", "Letter")  # nothing of it is on hold
    campaign = server.client().get("/campaigns/1").expect(200)
    assert (campaign["status"], campaign["stats"]["sent"]) == ("completed", 40)
    [message] = server.client().get("/messages?status=sent&limit=1").expect(200)
    assert HtmlPage(user, f"/outbox/{message['id']}").has("main", "the journal: sent after the backup")
    server.stop()


def restored_server(fresh_server: FreshServer, directory: Path) -> Server:
    """Return a server that was restored from a backup with a queued campaign and an active flow."""
    server = fresh_server()
    api = server.client()
    api.patch("/account", {"sending_stopped": True, "stop_reason": "for now"}).expect(200)
    list_id = create_list(api, 40)
    send_campaign(api, list_id)
    flow = {"name": "Welcome", "trigger": {"event": "list_add", "contact_list_id": list_id}, "steps": [CONTENT]}
    flow_id = api.post("/flows", flow).expect(201)["id"]
    api.post(f"/flows/{flow_id}/activate").expect(200)
    server.cli("backup", str(directory / "kept.tar.gz"))
    server.stop()
    server.cli("restore", str(directory / "kept.tar.gz"), "--force")
    return server.start()
