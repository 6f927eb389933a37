"""Several accounts of one service: the templates of one that take long to read do not hold up what others ask."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.conftest import FreshServer
from tests.journeys.test_fair_shares import second_account
from tests.kit.client import Client
from tests.kit.server import Server

# As much as one template may hold in its merge tags; each number makes another one
ARGUMENTS = ",".join("1" * 1_000)
STEPS = 8


def heavy(number: int) -> str:
    """Return a body that takes about as long to read as one may."""
    return f"<p>{number}</p>" + f"{{{{ a{number} | join: {ARGUMENTS} }}}}" * 15


def steps(first: int) -> list[dict[str, Any]]:
    """Return steps of a flow whose messages are within the limit together."""
    light = f"{{{{ a | join: {ARGUMENTS} }}}}"
    return [{"subject": "x", "body": f"{number}" + light * 3} for number in range(first, first + STEPS)]


def worst_of(other: Client, busy: Callable[[], object]) -> tuple[float, float]:
    """Do something busy, and return the longest wait of another account meanwhile and how long all of it took."""
    began = time.monotonic()
    waits = []
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(busy)
        while not done.done():
            before = time.monotonic()
            other.get("/lists").expect(200)
            other.post("/lists", {"name": f"List {len(waits)}"}).expect(201)
            waits.append(time.monotonic() - before)
        done.result()
    return max(waits), time.monotonic() - began


def flows(server: Server) -> None:
    """Post flows whose messages are heavy, four at once, and let them go live."""

    def one(number: int) -> None:
        api = server.client()
        made = api.post("/flows", {"name": "x", "steps": steps(number * 100)}).expect(201)
        api.patch(f"/flows/{made['id']}", {"steps": steps(number * 100 + 50)}).expect(200)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))


def test_heavy_templates_of_one_account_do_not_hold_up_another(fresh_server: FreshServer) -> None:
    """While one account writes many heavy templates, each request of another takes a small part of that time."""
    server = fresh_server()
    other = second_account(server)
    worst, whole = worst_of(other, lambda: flows(server))
    assert whole > 1, "nothing heavy was posted: the test says nothing"
    assert worst < whole / 6, (worst, whole)


def test_a_flow_with_more_in_merge_tags_than_may_be_published_is_refused_at_once(fresh_server: FreshServer) -> None:
    """Heavy messages, each within its own limit, are refused together before any of them is read."""
    server = fresh_server()
    api = server.client()
    said = [{"subject": "x", "body": heavy(number)} for number in range(12)]
    began = time.monotonic()
    refused = api.post("/flows", {"name": "x", "steps": said}).expect(422)
    assert refused["validation_errors"] == {
        "steps": ["the merge tags are too long (maximum is 65536 characters outside of quotes)"]
    }
    # One message of them takes longer to read than all of them to be counted
    assert time.monotonic() - began < 2


def test_large_bodies_of_strangers_do_not_hold_up_an_account(fresh_server: FreshServer) -> None:
    """Forms of 250,000 fields and large sign-ins, four at once, from people who are not signed in: refused at once."""
    server = fresh_server()
    other = second_account(server)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    fields = b"&".join(b"a%d=1" % number for number in range(200_000))
    numbers = b'{"email": "a@example.org", "password": "x", "z": [' + b"1," * 900_000 + b"1]}"
    told: list[int] = []

    def ask(place: tuple[str, bytes, dict[str, str]]) -> None:
        path, body, headers = place
        for _ in range(5):
            told.append(server.client(validate=False).request("POST", path, body, headers).status)

    def strangers() -> None:
        with ThreadPoolExecutor(4) as pool:
            places = [(path, fields, form) for path in ("/contacts", "/login", "/u/x")]
            list(pool.map(ask, [*places, ("/v1/login", numbers, {"Content-Type": "application/json"})]))

    worst, _ = worst_of(other, strangers)
    assert {413} <= set(told) <= {404, 413}
    assert worst < 2, worst
