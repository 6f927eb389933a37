"""Use pages as a browser without JavaScript does: sign in, load pages, post forms."""

import html
import re
from typing import Any
from urllib.parse import urlencode

from tests.kit.client import Client, Response
from tests.kit.server import EMAIL, PASSWORD

_FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
_UNDO = re.compile(r'<form[^>]*action="([^"]+)"[^>]*>((?:(?!</form>).)*?)Undo', re.S)
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


class ScriptlessBrowser:
    """A signed-in user whose browser runs no scripts."""

    def __init__(self, api: Client, email: str = EMAIL, *, language: str = "") -> None:
        self._api, self._cookie = api, ""
        self._language = {"Accept-Language": language} if language else {}
        response = self._request("POST", "/login", {"email": email, "password": PASSWORD})
        self._cookie = response.headers["set-cookie"].partition(";")[0]

    def _request(self, method: str, path: str, form: dict[str, Any] | None = None, **headers: str) -> Response:
        body = None if form is None else urlencode(form, doseq=True).encode()
        return self.request(method, path, body, **headers)

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
        """Send a request with the cookie of the session, by default as a form, and return the response."""
        return self._api.request(method, path, body, {**_FORM, "Cookie": self._cookie, **self._language, **headers})

    def visit(self, path: str) -> tuple[str, str]:
        """Return the path of a page after its redirects, and its text; the status must be 200."""
        response = self._request("GET", path)
        for _ in range(5):
            if response.status not in (302, 303):
                break
            path = response.headers["location"]
            response = self._request("GET", path)
        assert response.status == 200, (response.status, path)
        return path, response.text

    def get(self, path: str, **headers: str) -> str:
        """Return a page's text; the status must be 200."""
        response = self._request("GET", path, **headers)
        assert response.status == 200, (response.status, path)
        return response.text

    def status(self, method: str, path: str, **form: Any) -> int:
        """Return the status of a request; `form` is posted if the method is POST."""
        return self._request(method, path, form if method == "POST" else None).status

    def submit(self, path: str, /, **form: Any) -> Response:
        """Post a form and return the response, whatever its status."""
        return self._request("POST", path, form)

    def post(self, path: str, **form: Any) -> str:
        """Post a form; return the page after the redirect, or the direct response."""
        response = self._request("POST", path, form)
        if response.status == 303:
            return self.get(response.headers["location"])
        assert response.status in (200, 422), (response.status, path)
        return response.text

    def undo(self, page: str) -> str:
        """Press the undo button of a page's notice; return the page after the redirect."""
        raw = re.search(r'<div class="toast.*?</div>', page, re.S)
        assert raw is not None
        match = _UNDO.search(raw[0])
        assert match is not None, raw[0]
        return self.post(match[1], **{name: html.unescape(value) for name, value in _HIDDEN.findall(match[2])})


def notice_text(page: str) -> str:
    """Return the text of a page's notice."""
    match = re.search(r'<div class="toast.*?</div>', page, re.S)
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", match[0]).split())) if match else ""
