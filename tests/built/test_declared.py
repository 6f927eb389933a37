"""The pages that the executable has written down: all that the sources declare, there for the first who asks."""

import marshal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kit.paper import Paper
from tests.kit.server import Server
from ui import declared


def test_all_pages_are_written_down(executable: Path) -> None:
    """What it carries is what the sources say."""
    data = (executable.parent / "unpacked" / "_internal" / declared.FILE).read_bytes()
    assert marshal.loads(data) == declared.table()


def test_many_who_ask_at_once_after_a_start_get_their_pages(executable: Path) -> None:
    """While their modules are loaded, by them and by the service: nobody finds half a page."""
    paths = sorted(
        (blueprint.url_prefix or "") + route.uri
        for blueprint in declared.blueprints()
        for route in blueprint._future_routes
        if "GET" in route.methods and "<" not in route.uri
    )
    with Server(executable=executable).set_up() as server:
        visitor = Paper(server.client(validate=False))
        server.stop()
        server.start()
        with ThreadPoolExecutor(12) as many:
            answers = list(many.map(lambda path: visitor.status("GET", path), paths))
    assert len(paths) > 40 and answers.count(200) > 30
    assert [path for path, found in zip(paths, answers, strict=True) if found >= 500] == []
