"""What counts once counts once, however many ask at the same moment: owners, codes, sign-ins, idempotency keys."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.api_users import add_user, login, user_client
from tests.kit.client import Client, Response
from tests.kit.server import EMAIL, Server
from tests.ui.test_login import enable_second_factor, otp_code


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server on which nobody is locked out for trying at once."""
    with Server(env={"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "1000"}).set_up() as running:
        yield running
        running.stop()


def at_once(*asks: Callable[[], Response]) -> list[Response]:
    """Ask all of it at the same moment."""
    with ThreadPoolExecutor(len(asks)) as hands:
        return [one.result() for one in [hands.submit(ask) for ask in asks]]


def test_an_account_keeps_an_owner(server: Server) -> None:
    """Two owners who take it from each other, and from themselves, at once: one of them is left."""
    ann, ben = user_client(server), add_user(server, "owner", name="ben")
    ids = {row["email"]: row["id"] for row in ann.all("/users")}
    at_once(*(
        partial(who.patch, f"/users/{number}", {"role": "viewer"})
        for who in (ann, ben) for number in (ids[EMAIL], ids["ben@example.org"])
    ))  # fmt: skip
    roles = sorted(who.get("/user").expect(200)["role"] for who in (ann, ben))
    assert roles == ["owner", "viewer"]


def test_a_code_opens_once(server: Server) -> None:
    """A recovery code, and one of the app, typed ten times at once."""
    add_user(server, "viewer", name="cleo")
    key, codes = enable_second_factor(Visitor(server, "cleo@example.org"))
    for otp in (codes[0], otp_code(key, 1)):
        answers = at_once(*[partial(login, server, "cleo@example.org", otp=otp)] * 10)
        assert Counter(answer.status for answer in answers) == {200: 1, 401: 9}
    token = login(server, "cleo@example.org", otp=codes[1]).expect(200)["token"]
    ends = at_once(*[lambda: Client(server.url, token).delete("/v1/logout")] * 6)
    assert Counter(answer.status for answer in ends) == {204: 1, 401: 5}


def test_an_idempotency_key_is_of_its_account(server: Server, api: Client) -> None:
    """Two keys of one account and one of another send the same at once: one message each account, and no other's."""
    number = int(server.cli("account", "add", "Elsewhere").stdout)
    second, other = server.client(server.new_key("second")), server.client(
        server.new_key("theirs", "--account", str(number))
    )  # fmt: skip
    letter = {"to": "a@example.org", "subject": "x", "body": "<p>x</p>"}
    answers = at_once(*(
        partial(who.post, "/messages", letter, {"Idempotency-Key": "same"})
        for who in (api, second, other) * 4
    ))  # fmt: skip
    assert Counter(answer.status for answer in answers) == {201: 2, 200: 10}
    made = {(answer.json["account_id"], answer.json["id"]) for answer in answers}
    assert len(made) == 2 and {account for account, _ in made} == {1, number}
    assert [len(who.all("/messages")) for who in (api, other)] == [1, 1]
