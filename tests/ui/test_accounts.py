"""A person in several accounts: the switcher, links and forms of another account, invitations and removal."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, expect

from tests.kit.api_users import user_client
from tests.kit.axe import find_violations_in_light_and_dark
from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage, text_of
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, PASSWORD, Server

VIEWER = "both@example.org"


class World(NamedTuple):
    """Two accounts, North with id 1 and South; the owner of North is an editor of South, and `VIEWER` is in both."""

    server: Server
    south: int
    stranger: int  # a third account, with nobody of the others
    api: Client  # of South, with a key


@pytest.fixture(scope="module")
def world(server: Server) -> Iterator[World]:
    """Yield the accounts of the module."""
    server.client().patch("/account", {"name": "North"}).expect(200)
    south, stranger = (int(server.cli("account", "add", name).stdout) for name in ("South", "Elsewhere"))
    server.cli("user", "add", "--email", "south@example.org", "--account", str(south), stdin=f"{PASSWORD}\n")
    server.cli("user", "add", "--email", EMAIL, "--account", str(south), "--role", "editor")
    server.cli("user", "add", "--email", VIEWER, "--role", "viewer", stdin=f"{PASSWORD}\n")
    server.cli("user", "add", "--email", VIEWER, "--account", str(south), "--role", "owner")
    key = server.cli("key", "create", "South", "--account", str(south)).stdout.strip()
    yield World(server, south, stranger, server.client(key, validate=False))


def open_account(user: ScriptlessBrowser, number: int, place: str = "/") -> str:
    """Open an account at a place and return the path where that leads."""
    response = user.submit("/accounts/open", account=number, next=place)
    assert response.status == 303, response.text
    return str(response.headers["location"])


def test_the_switcher_keeps_the_place(world: World) -> None:
    """Switching keeps a page that both accounts have; a page of one account's object, or of a higher role, is Home."""
    user = ScriptlessBrowser(world.server.client())
    open_account(user, 1)
    page = HtmlPage(user, "/lists?sort=name")
    assert [text_of(button) for button in page.all("#accounts-menu button")] == ["North", "South"]
    page = page.press(page.all("#accounts-menu button")[1])
    assert page.path == "/lists?sort=name" and text_of(page.one(".mark")) == "South"
    created = world.server.client().post("/lists", {"name": "Only in North"}).expect(201)["id"]
    assert open_account(user, 1, f"/lists/{created}") == f"/lists/{created}"
    assert open_account(user, world.south, f"/lists/{created}") == "/"
    open_account(user, 1)
    assert open_account(user, world.south, "/settings/team") == "/"  # an editor there
    assert open_account(user, 1, "/no/such/page") == "/"
    assert open_account(user, world.south, "//evil.example") == "/"
    assert user.status("POST", "/accounts/open", account=world.stranger) == 404
    assert user.status("POST", "/accounts/open", account=str(2**70)) == 404
    # The next sign-in opens the account that was open last.
    assert "South" in text_of(HtmlPage(ScriptlessBrowser(world.server.client()), "/").one(".mark"))


def test_a_person_with_one_account_has_no_switcher(world: World) -> None:
    """Neither a switcher nor hidden fields: pages are as they were."""
    user = ScriptlessBrowser(world.server.client(), "south@example.org")
    text = user.get("/lists")
    assert "accounts-menu" not in text and "open_account" not in text and "data-account" not in text


def test_roles_and_data_are_those_of_the_open_account(world: World) -> None:
    """The viewer of North is an owner in South, and sees and changes only what is in the open account."""
    user = ScriptlessBrowser(world.server.client(), VIEWER)
    for name, number, role, may in (("North", 1, "viewer", False), ("South", world.south, "owner", True)):
        open_account(user, number)
        assert text_of(HtmlPage(user, "/").one(".mark")) == name
        assert user.status("GET", "/settings/team") == (200 if may else 403), role
        status = user.status("POST", "/lists", name=f"By a {role}", open_account=number)
        assert status == (303 if may else 403)
    assert [row["name"] for row in world.api.all("/lists")] == ["By a owner"]


def test_a_link_to_another_account_offers_to_switch(world: World) -> None:
    """A page of the person's other account is 404 with an offer; for anybody else it is as if it did not exist."""
    user = ScriptlessBrowser(world.server.client())
    open_account(user, 1)
    names = {"lists": {"name": "L"}, "segments": {"name": "S", "filters": []}, "templates": {"name": "T"},
             "campaigns": {"name": "C"}, "flows": {"name": "F"}, "contacts": {"email": "x@example.org"},
             "forms": {"name": "Fo"}}  # fmt: skip
    paths = [f"/{noun}/{world.api.post(f'/{noun}', body).expect(201)['id']}" for noun, body in names.items()]
    paths = [f"{path}/edit" if path.startswith("/templates") else path for path in paths]
    for path in paths:
        response = user.request("GET", path)
        assert response.status == 404 and "This page belongs to South." in response.text, path
        page = HtmlPage(user, path, response.text).press("Switch to South")
        assert page.path == path
        open_account(user, 1)
    stranger = ScriptlessBrowser(add_stranger(world), "stranger@example.org")
    for path in paths:
        unknown = re.sub("[0-9]+", "987654321", path)
        texts = [stranger.request("GET", place).text.replace(place, "/") for place in (path, unknown)]
        assert texts[0] == texts[1] and "South" not in texts[0]


def add_stranger(world: World) -> Client:
    """Add a user who is in the third account and in a fourth one, and return a client."""
    fourth = world.server.cli("account", "add", "Fourth").stdout.strip()
    email = "stranger@example.org"
    world.server.cli("user", "add", "--email", email, "--account", str(world.stranger), stdin=f"{PASSWORD}\n")
    world.server.cli("user", "add", "--email", email, "--account", fourth)
    return world.server.client()


def test_a_form_of_another_tab_is_refused(world: World) -> None:
    """A form goes to the account that it was made for, or nowhere: not to the one that another tab has opened."""
    user = ScriptlessBrowser(world.server.client())
    open_account(user, 1)
    assert HtmlPage(user, "/lists/new").all("form[method=post] input[name=open_account]")
    open_account(user, world.south)
    before = [row["name"] for row in world.api.all("/lists")]
    response = user.submit("/lists", name="From the other tab", open_account="1")
    assert response.status == 409
    assert "This form belongs to North, but you have opened South since. Nothing was saved." in response.text
    assert [row["name"] for row in world.api.all("/lists")] == before
    # Without a statement, a write that is about no object is refused, too.
    assert user.status("POST", "/lists", name="Unstated") == 409
    assert user.status("POST", "/lists", name="Made up", open_account="77") == 409
    # What is the person's own needs no statement.
    assert user.status("POST", "/settings/you", name="Owner") == 303
    partial = user.request("POST", "/lists", b"name=Header", **{"X-Account": "1", "HX-Request": "true"})
    assert partial.status == 409 and partial.headers["hx-retarget"] == "#dialog"
    switched = user.request("POST", "/accounts/open", b"account=1", **{"X-Account": "77", "HX-Request": "true"})
    assert switched.status == 200 and switched.headers["hx-retarget"] == "#dialog"
    assert user.status("POST", "/lists", name="From the other tab", open_account="1") == 303
    assert [row["name"] for row in world.api.all("/lists")] == before
    # An upload says it in its URL, because its body is not read before.
    upload_form = user.get("/contacts/imports/new")
    assert re.search(r'action="/contacts/imports\?open_account=1"', upload_form)


def test_an_admin_of_one_account_cannot_enter_the_other(world: World) -> None:
    """Password, second factor and name of a person in two accounts are changed by nobody else."""
    admin = user_client(world.server, "south@example.org")
    person = next(row for row in admin.get("/users").expect(200) if row["email"] == VIEWER)
    for change in ({"password": "another long password"}, {"name": "Renamed"}, {"otp": False}):
        assert admin.patch(f"/users/{person['id']}", change).status == 403
    page = ScriptlessBrowser(world.server.client(), "south@example.org")
    assert f"/settings/team/{person['id']}/password" not in page.get("/settings/team")
    assert page.status("POST", f"/settings/team/{person['id']}/password") == 403
    assert admin.patch(f"/users/{person['id']}", {"role": "admin"}).expect(200)["role"] == "admin"
    user = ScriptlessBrowser(world.server.client(), VIEWER)
    open_account(user, 1)
    assert user.status("GET", "/settings/team") == 403  # still a viewer in North
    admin.patch(f"/users/{person['id']}", {"role": "owner"}).expect(200)


def test_an_invited_person_joins_with_the_user_there_is(world: World) -> None:
    """The link asks for no new password but for the person to be signed in; removal leaves the other accounts."""
    owner = ScriptlessBrowser(world.server.client(), "south@example.org")
    team = HtmlPage(owner, "/settings/team")
    team.fill("Email", "joiner@example.org")
    world.server.cli("user", "add", "--email", "joiner@example.org", "--role", "viewer", stdin=f"{PASSWORD}\n")
    team.check("Author")
    shown = team.press("Create invitation link")
    link = re.search(r"/invitations/[0-9]+/[\w-]+", shown.value("Invitation link"))
    assert link is not None
    other = ScriptlessBrowser(world.server.client())
    assert f"You are signed in as {EMAIL}" in HtmlPage(other, link[0]).text
    assert other.status("POST", link[0]) == 403
    anonymous = world.server.client().request("GET", link[0])
    assert "Sign in as joiner@example.org to join." in anonymous.text and 'type="password"' not in anonymous.text
    joiner = ScriptlessBrowser(world.server.client(), "joiner@example.org")
    joined = HtmlPage(joiner, link[0]).press("Join the team")
    assert text_of(joined.one(".mark")) == "South"
    assert joiner.status("GET", "/campaigns") == 200 and joiner.status("GET", link[0]) == 410
    admin = user_client(world.server, "south@example.org")
    row = next(row for row in admin.get("/users").expect(200) if row["email"] == "joiner@example.org")
    assert row["role"] == "author"
    admin.delete(f"/users/{row['id']}").expect(200)
    assert joiner.status("GET", "/campaigns") == 303  # the session had South open
    again = ScriptlessBrowser(world.server.client(), "joiner@example.org")
    assert text_of(HtmlPage(again, "/").one(".mark")) == "North"
    assert again.status("POST", "/accounts/open", account=world.south) == 404
    entries = admin.get("/audit", subject=f"user:{row['id']}").expect(200)
    assert {"user_add", "account_open", "user_disable"} <= {entry["action"] for entry in entries}


def test_the_switcher_by_keyboard_and_on_a_phone(world: World, browser: Browser) -> None:
    """The menu is opened and used by keyboard, has no axe violations, and is under More on a phone."""
    problems = Problems()
    problems.allow("409")
    page = sign_in(new_page(browser, world.server.url, problems))
    page.goto("/lists")
    start = page.locator(".mark").inner_text()
    other = {"North": "South", "South": "North"}[start]
    button = page.get_by_role("button", name="Switch account")
    button.focus()
    page.keyboard.press("Enter")
    menu = page.locator("#accounts-menu")
    expect(menu).to_be_visible()
    assert find_violations_in_light_and_dark(page) == []
    choice = menu.get_by_role("button", name=other)
    choice.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".mark")).to_have_text(other)
    assert page.url.endswith("/lists")
    expect(page.locator(".toast")).to_contain_text(f"You are now in {other}.")
    # A page of the other tab is stale by now: what it writes is refused, and stays on the page.
    stale = page.context.new_page()
    stale.goto("/lists")
    page.goto("/campaigns")
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_role("button", name="More", exact=True).click()
    page.locator("#more-menu").get_by_role("button", name=start).click()
    page.wait_for_load_state()
    stale.evaluate("htmx.ajax('POST', '/lists', { values: { name: 'Stale' }, target: '#main' })")
    expect(stale.get_by_role("dialog")).to_contain_text("Nothing was saved.")
    stale.get_by_role("dialog").get_by_role("button", name=f"Switch to {other}").click()
    expect(stale.get_by_role("dialog")).to_have_count(0)
    page.context.close()
    assert not problems.found
