"""Errors of requests: pages show them in the language of the user, the API always returns them in English."""

from pathlib import Path

from tests.kit import pseudo_languages
from tests.kit.pseudo_languages import LONG, RIGHT_TO_LEFT, transform
from tests.kit.scriptless_browser import ScriptlessBrowser, notice_text
from tests.kit.server import Server

REFUSAL, REASON = "Cannot be resent: %(reason)s", "this is not an email campaign that was sent"


def test_errors_of_pages_and_of_the_api(tmp_path: Path) -> None:
    """A page shows an error of a write in its language; the API returns English errors on the same connection."""
    with Server(env=pseudo_languages.environment(tmp_path, [REFUSAL, REASON])).set_up() as server:
        api = server.client(keep_alive=True)
        path = f"/campaigns/{api.post('/campaigns', {'name': 'News'}).expect(201)['id']}"
        browser = ScriptlessBrowser(api)
        for language in (LONG, RIGHT_TO_LEFT):
            header = {"Accept-Language": language}
            refusal = browser._request("POST", f"{path}/not-opened", {}, **header)
            assert (refusal.status, refusal.headers["location"]) == (303, path)
            page = browser.get(path, **header)
            assert f'<html lang="{language}"' in page
            assert notice_text(page) == transform(REFUSAL).replace("%(reason)s", f"{transform(REASON)}.")
            assert not notice_text(browser.get(path, **header))
            error = api.post(f"{path}/pause", {}, header).expect(422)
            assert error["message"] == "A campaign with the status draft cannot be paused."
            error = api.post("/suppressions", {"address": "nobody"}, header).expect(422)
            assert error["validation_errors"] == {"address": ["is invalid"]}
