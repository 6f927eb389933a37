"""Pages and endpoints that the executable has written down: all that the sources declare, for the first who asks."""

import marshal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from appliance.api import declared as endpoints
from tests.kit.paper import Paper
from tests.kit.server import Server
from ui import declared


def test_all_of_them_are_written_down(executable: Path) -> None:
    """What it carries is what the sources say."""
    inside = executable.parent / "unpacked" / "_internal"
    assert marshal.loads((inside / declared.FILE).read_bytes()) == list(map(tuple, declared.table()))
    assert marshal.loads((inside / endpoints.FILE).read_bytes()) == list(map(tuple, endpoints.table()))


def test_many_who_ask_at_once_after_a_start_get_their_pages(executable: Path) -> None:
    """While their modules are loaded, by them and by the service: nobody finds half a page."""
    paths = sorted(one.path for one in declared.table() if "GET" in one.methods and "<" not in one.path)
    with Server(executable=executable).set_up() as server:
        visitor = Paper(server.client(validate=False))
        server.stop()
        server.start()
        with ThreadPoolExecutor(12) as many:
            answers = list(many.map(lambda path: visitor.status("GET", path), paths))
    assert len(paths) > 40 and answers.count(200) > 30
    assert [path for path, found in zip(paths, answers, strict=True) if found >= 500] == []


def test_many_who_call_at_once_after_a_start_get_their_answers(executable: Path) -> None:
    """The first calls wait until endpoints are loaded, each for its own: what is too large is refused as ever."""
    paths = [one.path for one in endpoints.table() if one.method == "GET" and "{" not in one.path]
    with Server(executable=executable).set_up() as server:
        api = server.client(validate=False)
        server.stop()
        server.start()
        with ThreadPoolExecutor(12) as many:
            large = many.submit(api.post, "/contacts", {"first_name": "x" * 9_000_000})
            answers = list(many.map(lambda path: api.get(path).status, paths))
        assert large.result().status == 413
        assert api.post("/contacts", {"email": "ann@example.com"}).status == 201
    assert len(paths) > 30 and answers.count(200) > 20
    assert [path for path, found in zip(paths, answers, strict=True) if found >= 500] == []


def test_many_recipients_at_once_after_a_start_get_their_answers(executable: Path) -> None:
    """Links, pictures, forms and hooks are loaded for whoever asks first, as is what says that nothing is there."""
    paths = [f"/{door}/nothing" for door in "updfvco"] + [
        "/hooks/postmark",
        "/hooks/twilio/status",
        "/nowhere",
        "/media/x",
    ]
    with Server(executable=executable).set_up() as server:
        api = server.client(validate=False)
        server.stop()
        server.start()
        with ThreadPoolExecutor(12) as many:
            answers = list(many.map(lambda path: api.request("GET", path).status, paths * 4))
        assert api.request("POST", "/v1/login", b"{}", {"Content-Type": "application/json"}).status == 422
        assert api.request("OPTIONS", "/v1/public/forms/nothing").status in (204, 404)
    assert answers.count(404) > 30
    assert [path for path, found in zip(paths * 4, answers, strict=True) if found >= 500] == []


def test_every_connection_compares_letters_of_all_languages(executable: Path) -> None:
    """Whichever thread was asked first, before anything of filters was loaded."""
    rules = [{"name": "contact_first_name", "predicate": "eq", "value": "JÜRGEN"}]
    with Server(executable=executable).set_up() as server:
        api = server.client(validate=False)
        server.stop()
        server.start()
        with ThreadPoolExecutor(12) as many:
            assert set(many.map(lambda _: api.get("/healthz").status, range(24))) == {200}
            api.post("/contacts", {"email": "j@example.org", "first_name": "Jürgen"}).expect(201)
            found = list(many.map(lambda _: api.post("/segments/count", {"filters": rules}), range(12)))
    assert {(one.status, one.json["count"]) for one in found} == {(200, 1)}, found[0].text
