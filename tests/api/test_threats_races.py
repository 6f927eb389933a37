"""Parallel requests: owners, one-time codes, sessions, idempotency keys, and two users who save the same."""

import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.api.test_threats_pages import Visitor
from tests.kit.api_users import add_user, login, user_client
from tests.kit.client import Client, Response
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import EMAIL, Server
from tests.ui.test_edit_conflicts_without_javascript import form_state
from tests.ui.test_login import enable_second_factor, otp_code

SERVER_ENV = {"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "1000"}


def run_in_parallel(*asks: Callable[[], Response]) -> list[Response]:
    """Run functions in parallel and return their responses."""
    with ThreadPoolExecutor(len(asks)) as hands:
        return [future.result() for future in [hands.submit(ask) for ask in asks]]


def test_an_account_keeps_an_owner(server: Server) -> None:
    """Of two owners who demote each other and themselves in parallel one stays an owner."""
    ann, ben = user_client(server), add_user(server, "owner", name="ben")
    ids = {row["email"]: row["id"] for row in ann.all("/users")}
    run_in_parallel(*(
        partial(who.patch, f"/users/{number}", {"role": "viewer"})
        for who in (ann, ben) for number in (ids[EMAIL], ids["ben@example.org"])
    ))  # fmt: skip
    roles = sorted(who.get("/user").expect(200)["role"] for who in (ann, ben))
    assert roles == ["owner", "viewer"]
    for who in (ann, ben):
        who.patch(f"/users/{ids[EMAIL]}", {"role": "owner"})  # for the tests below


def test_one_time_codes_work_once(server: Server) -> None:
    """Of ten parallel logins with one code, and of parallel logouts with one token, one succeeds."""
    add_user(server, "viewer", name="cleo")
    key, codes = enable_second_factor(Visitor(server, "cleo@example.org"))
    for otp in (codes[0], otp_code(key, 1)):
        responses = run_in_parallel(*[partial(login, server, "cleo@example.org", otp=otp)] * 10)
        assert Counter(response.status for response in responses) == {200: 1, 401: 9}
    token = login(server, "cleo@example.org", otp=codes[1]).expect(200)["token"]
    ends = run_in_parallel(*[lambda: Client(server.url, token).delete("/v1/logout")] * 6)
    assert Counter(response.status for response in ends) == {204: 1, 401: 5}


def test_idempotency_keys_are_separate_for_accounts(server: Server, api: Client) -> None:
    """Parallel sends with the same key create one message for each account."""
    number = int(server.cli("account", "add", "Elsewhere").stdout)
    second, other = server.client(server.new_key("second")), server.client(
        server.new_key("theirs", "--account", str(number))
    )  # fmt: skip
    letter = {"to": "a@example.org", "subject": "x", "body": "<p>x</p>"}
    responses = run_in_parallel(*(
        partial(who.post, "/messages", letter, {"Idempotency-Key": "same"})
        for who in (api, second, other) * 4
    ))  # fmt: skip
    assert Counter(response.status for response in responses) == {201: 2, 200: 10}
    ids = {(response.json["account_id"], response.json["id"]) for response in responses}
    assert len(ids) == 2 and {account for account, _ in ids} == {1, number}
    assert [len(who.all("/messages")) for who in (api, other)] == [1, 1]


def test_two_users_who_save_the_same_translation(server: Server) -> None:
    """Of two parallel translations of a text one is saved, and the other user is told."""
    api = server.client()
    design = {"sections": [{"id": "a", "type": "text", "props": {"content": "<p>Bread</p>"}}]}
    browsers = [ScriptlessBrowser(server.client(validate=False)) for _ in range(3)]
    for number in range(6):
        body = {"name": f"Race {number}", "subject": "Bread", "design": design}
        template_id = api.post("/templates", body).expect(201)["id"]
        path = f"/templates/{template_id}/translations/de"
        api.put(path, {"texts": {}}).expect(200)
        partial_page = {"HX-Request": "true"}
        original = re.findall(r'name="original" value="(\w+)"', browsers[0].get(path))[0]
        form = {"id": "subject", "seen": "", "original": original}
        responses = run_in_parallel(*(
            partial(browser._request, "POST", path, form | {"text": f"Brot {at}"}, **partial_page)
            for at, browser in enumerate(browsers)
        ))  # fmt: skip
        assert sorted(response.status for response in responses) == [200, 422, 422]
        stored = api.get(path).expect(200)["texts"][0]["text"]
        [winner] = [at for at, response in enumerate(responses) if response.status == 200]
        assert stored == f"Brot {winner}"


def test_two_users_who_add_tests_to_a_flow(server: Server) -> None:
    """Tests of a flow that are saved and deleted in parallel are all saved, and deleted."""
    api = server.client()
    flow_id = api.post("/flows", {"name": "Race", "trigger": {"event": "contact_add"}}).expect(201)["id"]
    browsers = [ScriptlessBrowser(server.client(validate=False)) for _ in range(4)]
    run_in_parallel(*(
        partial(browser.submit, f"/flows/{flow_id}/try", name=f"Test {at}") for at, browser in enumerate(browsers)
    ))  # fmt: skip
    stored = api.get(f"/flows/{flow_id}").expect(200)["data"]["scripts"]
    assert sorted(script["name"] for script in stored) == [f"Test {at}" for at in range(4)]
    run_in_parallel(*(
        partial(browser.submit, f"/flows/{flow_id}/try/forget", at=at + 1, name=script["name"])
        for at, (browser, script) in enumerate(zip(browsers, stored, strict=True))
    ))  # fmt: skip
    remaining = api.get(f"/flows/{flow_id}").expect(200)["data"]["scripts"]
    # Those that a parallel deletion moved are not deleted, because their place names another test.
    assert len(remaining) < 4 and {script["name"] for script in remaining} <= {f"Test {at}" for at in range(4)}


def test_two_users_who_save_the_same_setting(server: Server) -> None:
    """Of parallel changes of one setting one is saved, and the others are conflicts."""
    browsers = [ScriptlessBrowser(server.client(validate=False)) for _ in range(4)]
    for number in range(6):
        page = browsers[0].get("/settings/sending")
        seen = form_state(page, "/settings/sending")
        responses = run_in_parallel(*(
            partial(browser.submit, "/settings/sending", part="email", seen=seen,
                    **{"email.transport": "relay", "email.relay.host": f"relay{number}-{at}.example.com"})
            for at, browser in enumerate(browsers)
        ))  # fmt: skip
        assert sorted(response.status for response in responses) == [303, 409, 409, 409]
