"""Fixtures of the browser tests: pages of the owner of the shared server, and pages for the email editor."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.kit.browser import Problems, new_page, sign_in
from tests.kit.editor import running_editor
from tests.kit.server import Server


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """Yield a page signed in as the owner, shared by the tests of a module, which fails on any console error."""
    problems = Problems()
    opened = sign_in(new_page(browser, server.url, problems, width=1360))
    yield opened
    opened.context.close()
    assert not problems.found


@pytest.fixture
def editor_page(browser: Browser, server: Server) -> Iterator[Page]:
    """Yield a signed-in page for the email editor."""
    with running_editor(browser, server) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_editor_page(browser: Browser, server: Server) -> Iterator[Page]:
    """Yield a signed-in page for the email editor, shared by the tests of a module."""
    with running_editor(browser, server) as opened:
        yield opened
