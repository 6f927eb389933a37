"""Errors of requests: pages show them in the language of the user, the API always returns them in English."""

from html import unescape
from pathlib import Path

from tests.kit import pseudo_languages
from tests.kit.pseudo_languages import LONG, RIGHT_TO_LEFT, transform
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import Server


def test_errors_of_pages_and_of_the_api(tmp_path: Path) -> None:
    """A page shows an error of a write in its language; the API returns English errors on the same connection."""
    with Server(env=pseudo_languages.environment(tmp_path)).set_up() as server:
        api = server.client(keep_alive=True)
        path = f"/campaigns/{api.post('/campaigns', {'name': 'News'}).expect(201)['id']}"
        browser = ScriptlessBrowser(api)
        for language in (LONG, RIGHT_TO_LEFT):
            header = {"Accept-Language": language}
            assert browser._request("POST", f"{path}/not-opened", {}, **header).status == 303
            page = browser._request("GET", path, None, **header)
            assert page.status == 200 and f'<html lang="{language}"' in page.text
            assert transform("this is not an email campaign that was sent") in unescape(page.text)
            error = api.post(f"{path}/pause", {}, header).expect(422)
            assert error["message"] == "A campaign with the status draft cannot be paused."
            error = api.post("/suppressions", {"address": "nobody"}, header).expect(422)
            assert error["validation_errors"] == {"address": ["is invalid"]}
