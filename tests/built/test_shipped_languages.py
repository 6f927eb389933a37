"""The executable has the catalogues and the dates of every language."""

from pathlib import Path

from appliance.core import i18n
from tests.kit.server import Server
from tests.ui.test_roles import session_cookie


def test_pages_of_the_executable_are_translated(executable: Path) -> None:
    """Sign-in and Home, which has dates and numbers, are in the language of the browser."""
    with Server(executable=executable).set_up() as server:
        cookie = session_cookie(server, "owner@example.com")
        for language in i18n.LANGUAGES:
            tag, texts = language.replace("_", "-"), i18n.load_catalogue(language)
            headers = {"Accept-Language": tag, "Accept": "text/html"}
            page = server.client().request("GET", "/login", headers=headers)
            assert page.status == 200 and f'<html lang="{tag}"' in page.text, language
            assert f"<h1>{texts.gettext('Sign in')}</h1>" in page.text, language
            home = server.client().request("GET", "/", headers=headers | {"Cookie": cookie})
            assert home.status == 200 and f">{texts.gettext('Getting started')}</h2>" in home.text, language
        server.stop()
