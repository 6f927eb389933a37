"""The table `page_roles.txt` has the roles that may use each page, as declared by the handlers."""

from pathlib import Path

from appliance.accounts.access import ROLES
from tests.kit.page_scopes import list_pages

TABLE = Path(__file__).with_name("page_roles.txt")


def test_page_roles_match_the_table() -> None:
    """A page that is added, removed or given other roles must change the table."""
    lines = ["method path " + " ".join(ROLES)]
    for page in sorted(list_pages()):
        marks = ["signed-out"] if page.is_open else ["yes" if page.allows(role) else "-" for role in ROLES]
        lines.append(" ".join((page.method, page.path, *marks)))
    assert lines == TABLE.read_text().splitlines()


def test_every_write_of_a_signed_in_page_declares_its_scope() -> None:
    """Every page that accepts a form declares a scope."""
    assert [page for page in list_pages() if page.method != "GET" and not page.is_open and page.needs is None] == []
