"""Who may send which form, each of them: a form that is new has to be put where it belongs (docs/decisions.md#2)."""

import re
from collections.abc import Iterator

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.routes import of_pages
from tests.kit.server import PASSWORD, Server

# Who the least is that may; what all may who are signed in, or anybody, stands with the viewer
FORMS = {
    "viewer": """
        /login /logout /forgot /reset/* /setup/* /segments/check /segments/rows /settings/keyboard /settings/theme
        /settings/you /settings/you/otp /settings/you/otp/off /settings/you/password /settings/you/sessions/*/end
        /settings/you/sessions/end""",
    "author": """
        /activity/answers/*/seen /campaigns /campaigns/*/ask /campaigns/*/content /campaigns/*/delete
        /campaigns/*/duplicate /campaigns/*/from /campaigns/*/html /campaigns/*/list /campaigns/*/name
        /campaigns/*/not-opened
        /campaigns/*/segment /campaigns/*/template /campaigns/*/template/undo /campaigns/*/test /campaigns/*/to
        /campaigns/*/when /campaigns/acts /campaigns/restore /contacts /contacts/* /contacts/*/consent
        /contacts/*/conversation/parts
        /contacts/*/conversation/seen /contacts/*/delete /contacts/*/erase /contacts/*/merge /contacts/acts
        /contacts/acts/*/undo /contacts/filter /contacts/imports /contacts/imports/* /contacts/imports/*/apply
        /contacts/imports/*/dates /contacts/imports/*/discard /contacts/imports/*/stop /contacts/imports/*/undo
        /contacts/suppressions
        /contacts/suppressions/*/lift /flows /flows/* /flows/*/ask /flows/*/conditions /flows/*/delete
        /flows/*/discard /flows/*/steps /flows/*/steps/* /flows/*/steps/*/duplicate /flows/*/steps/*/move
        /flows/*/steps/*/remove /flows/*/trigger /flows/*/try /flows/*/try/forget /flows/*/undo /flows/acts /forms
        /forms/* /forms/*/delete /inbox/*/simulate /lists /lists/* /lists/*/delete /lists/*/people
        /lists/*/people/remove /lists/acts /segments /segments/* /segments/*/copy /segments/acts /segments/restore
        /templates /templates/* /templates/*/delete /templates/*/design /templates/*/details /templates/*/duplicate
        /templates/*/label /templates/*/presence /templates/*/redo /templates/*/restore /templates/*/sections
        /templates/*/sections/* /templates/*/sections/*/audience /templates/*/sections/*/duplicate
        /templates/*/sections/*/items /templates/*/sections/*/move /templates/*/sections/*/remove /templates/*/test
        /templates/*/theme /templates/*/undo /templates/*/unstyle /templates/acts /templates/begin
        /templates/bring-back /templates/import /templates/media /templates/pictures /templates/pictures/*/delete""",
    "editor": """
        /campaigns/*/assume /campaigns/*/cancel /campaigns/*/pause /campaigns/*/resume /campaigns/*/retry
        /campaigns/*/schedule /campaigns/*/send /campaigns/*/undo /contacts/*/conversation /flows/*/activate
        /flows/*/archive /flows/*/pause /flows/*/people/move_on /flows/*/people/take_out /flows/*/publish
        /flows/*/revive /flows/put-back /outbox/*/assume /outbox/*/cancel /outbox/*/retry /outbox/retry""",
    "admin": """
        /brand /brand/logo /campaigns/*/approve /campaigns/*/reject /flows/*/approve /flows/*/reject /settings
        /inbox/clear
        /settings/consent /settings/data/backup /settings/doctor /settings/domains /settings/domains/*/delete
        /settings/domains/*/rotate
        /settings/domains/*/verify /settings/keys /settings/keys/*/revoke /settings/sending /settings/sending/test
        /settings/stop /settings/team /settings/team/*/close /settings/team/*/otp-off /settings/team/*/password
        /settings/team/*/reopen /settings/team/*/role /settings/webhooks /settings/webhooks/*
        /settings/webhooks/*/again /settings/webhooks/*/delete /settings/webhooks/*/secret
        /settings/webhooks/*/switch /settings/webhooks/*/test /welcome /welcome/brand /welcome/domain /welcome/mail
        /welcome/mail/test""",
}
NEVER = "987654321"
# They end the sign-in that asks, or are for who has none
APART = ("/login", "/logout", "/forgot", "/reset/*", "/setup/*", "/settings/you/sessions/end")


def test_every_form_is_in_the_table_and_no_other() -> None:
    """The table and the routes are the same."""
    asked = sorted(re.sub(r"<\w+:\w+>", "*", path) for method, path in of_pages() if method == "POST")
    assert sorted(set(asked)) == sorted(" ".join(FORMS.values()).split())
    assert {method for method, _ in of_pages()} <= {"GET", "HEAD", "OPTIONS", "POST"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that forgives wrong passwords, of which an empty form has one."""
    with Server(env={"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "1000"}).set_up() as running:
        yield running
        running.stop()


@pytest.mark.parametrize("role", ["viewer", "author", "editor"])
def test_a_role_sends_its_forms_and_no_other(server: Server, role: str) -> None:
    """Of things that never were: refused for the role, or not there. An address with a slash more is the same one."""
    server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=f"{PASSWORD}\n")
    who, order = Visitor(server, f"{role}@example.org"), list(FORMS)
    for least, forms in FORMS.items():
        allowed = order.index(least) <= order.index(role)
        for form in forms.split():
            if form in APART:
                continue
            path = form.replace("*", NEVER).rstrip("/")
            for here in (path, f"{path}/"):
                answer = who.send("POST", here)
                assert (answer.status != 403) == allowed, (role, here, answer.status)
