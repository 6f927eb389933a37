"""Backups on their page, and what a restored account shows before it sends."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.conftest import FreshServer
from tests.kit.browser import Problems, new_page, shoot, sign_in
from tests.kit.recipients import CONTENT, crowd, send
from tests.kit.server import Server


def test_a_backup_by_a_button(
    browser: Browser, fresh_server: FreshServer, browser_problems: Problems, tmp_path: Path
) -> None:
    """Asked for, seen in the making, and there when it is made; one that fails says why."""
    server = fresh_server()
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.goto("/settings/data")
    card = page.locator("#backups")
    expect(card).to_contain_text("None is made by itself")
    card.get_by_role("button", name="Back up now").click()
    expect(card.locator("tbody tr")).to_have_count(1)
    expect(card.get_by_role("button", name="Back up now")).to_be_enabled()
    expect(card.locator(".pill")).to_have_text("Kept")
    shoot(page, "backups")
    (server.data / "backups").rename(server.data / "elsewhere")
    (server.data / "backups").write_text("in the way")
    card.get_by_role("button", name="Back up now").click()
    expect(card.get_by_role("alert")).to_contain_text("was not made")
    page.goto("/settings/audit")
    expect(page.locator("main tbody").get_by_text("Made a backup").first).to_be_visible()
    page.context.close()


def test_what_a_restored_account_would_send(
    browser: Browser, fresh_server: FreshServer, browser_problems: Problems, tmp_path: Path
) -> None:
    """Each page says that nothing leaves; what would is listed, can be stopped, and goes on when somebody says so."""
    server = held(fresh_server, tmp_path)
    page = sign_in(new_page(browser, server.url, browser_problems))
    page.get_by_role("link", name="Look at it").click()
    expect(page.get_by_role("heading", name="Restored from a backup")).to_be_visible()
    row = page.locator("tbody tr", has_text="Letter")
    expect(row.locator("td").nth(2)).to_have_text("40")
    expect(page.locator("main")).to_contain_text("Welcome")
    shoot(page, "restored")
    page.get_by_role("button", name="Let the rest go out").click()
    expect(page.get_by_text("Going on.")).to_be_visible()
    page.goto("/restored")
    expect(page.get_by_text("Nothing is held back")).to_be_visible()
    server.client().wait("/campaigns/1", lambda one: one["status"] == "completed")
    page.context.close()


def held(fresh_server: FreshServer, place: Path) -> Server:
    """Return a server whose data were restored while a campaign waited and a flow was live."""
    server = fresh_server()
    api = server.client()
    api.patch("/account", {"sending_stopped": True, "stop_reason": "for now"}).expect(200)
    group = crowd(api, 40)
    send(api, group)
    flow = {"name": "Welcome", "trigger": {"event": "list_add", "contact_list_id": group}, "steps": [CONTENT]}
    made = api.post("/flows", flow).expect(201)["id"]
    api.post(f"/flows/{made}/activate").expect(200)
    server.cli("backup", str(place / "kept.tar.gz"))
    server.stop()
    server.cli("restore", str(place / "kept.tar.gz"), "--force")
    return server.start()
