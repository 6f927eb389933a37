"""The roles that may submit each form: a new form must be added here (docs/decisions.md#2)."""

import re

import pytest

from tests.api.test_threats_pages import Visitor
from tests.kit.routes import page_routes
from tests.kit.sampling import full_only, is_full
from tests.kit.server import PASSWORD, Server

SERVER_ENV = {"CAMPANERO_LIMITS__LOGIN_ATTEMPTS": "1000"}
# By the least role that may submit it; forms for everyone are with the viewer
FORMS = {
    "viewer": """
        /login/oidc/*/finish /accounts/open /login /logout /forgot /invitations/*/* /oauth/authorize /reset/* /setup/*
        /segments/*/preview /segments/check /segments/rows /login/passkey
        /settings/apps/*/disconnect /settings/keyboard /settings/theme /setup/*/account-name
        /settings/you /settings/you/language /settings/you/otp /settings/you/otp/off /settings/you/password
        /settings/you/identities/* /settings/you/identities/*/unlink
        /settings/you/codes /settings/you/notices /settings/you/passkeys /settings/you/passkeys/*
        /settings/you/passkeys/*/remove /settings/you/passkeys/new /settings/you/sessions/*
        /settings/you/sessions/*/end /settings/you/sessions/end""",
    "author": """
        /activity/answers/*/seen /campaigns /campaigns/*/ask /campaigns/*/content /campaigns/*/delete
        /campaigns/*/duplicate /campaigns/*/experiment /campaigns/*/experiment/undo
        /campaigns/*/from /campaigns/*/html
        /campaigns/*/links/https /campaigns/*/list /campaigns/*/name
        /campaigns/*/not-opened
        /campaigns/*/segment /campaigns/*/template /campaigns/*/template/undo /campaigns/*/test /campaigns/*/to
        /campaigns/*/when /campaigns/acts /campaigns/restore /contacts /contacts/* /contacts/*/consent
        /contacts/*/conversation/parts
        /contacts/*/conversation/seen /contacts/*/delete /contacts/*/erase /contacts/*/merge /contacts/acts
        /contacts/acts/*/undo /contacts/filter /contacts/imports /contacts/imports/* /contacts/imports/*/apply
        /contacts/imports/*/columns/*/type /contacts/imports/*/numbers
        /contacts/imports/*/dates /contacts/imports/*/discard /contacts/imports/*/stop /contacts/imports/*/undo
        /contacts/suppressions
        /contacts/suppressions/*/lift /contacts/typo /flows /flows/* /flows/*/ask /flows/*/conditions /flows/*/delete
        /flows/*/discard /flows/*/replay /flows/*/replay/cancel
        /flows/*/steps /flows/*/steps/* /flows/*/steps/*/duplicate /flows/*/steps/*/move
        /flows/*/steps/*/remove /flows/*/steps/*/template /flows/*/trigger /flows/*/try /flows/*/try/forget
        /flows/*/undo /flows/acts /forms
        /forms/* /forms/*/copy /forms/*/delete
        /forms/preview /inbox/*/simulate /lists /lists/* /lists/*/delete /lists/*/people
        /lists/*/people/remove /lists/acts /segments /segments/* /segments/*/copy /segments/acts /segments/restore
        /settings/content/apply /settings/content/check
        /templates /templates/* /templates/*/delete /templates/*/design /templates/*/details /templates/*/duplicate
        /templates/*/label /templates/*/presence /templates/*/redo /templates/*/restore /templates/*/save
        /templates/*/basics /templates/*/sections /templates/*/take-over
        /templates/*/sections/* /templates/*/sections/*/audience /templates/*/sections/*/duplicate
        /templates/*/sections/*/items /templates/*/sections/*/move /templates/*/sections/*/remove /templates/*/test
        /templates/*/theme /templates/*/translations /templates/*/translations/*
        /templates/*/translations/*/remove /templates/*/undo /templates/*/unstyle /templates/acts /templates/begin
        /templates/bring-back /templates/import /templates/media /templates/pictures /templates/pictures/*/delete""",
    "editor": """
        /campaigns/*/assume /campaigns/*/cancel /campaigns/*/experiment/winner /campaigns/*/pause
        /campaigns/*/reschedule /campaigns/*/resume
        /campaigns/*/retry
        /campaigns/*/schedule /campaigns/*/send /campaigns/*/undo /contacts/*/conversation /flows/*/activate
        /flows/*/archive /flows/*/pause /flows/*/people/move_on /flows/*/people/take_out /flows/*/publish
        /flows/*/requests/retry /flows/*/revive /flows/*/steps/*/winner /flows/put-back /outbox/*/assume
        /outbox/*/cancel /outbox/*/retry /outbox/retry /proposals/*/approve /proposals/*/return""",
    "admin": """
        /brand /brand/logo /brand/logo/undo /campaigns/*/approve /campaigns/*/reject /flows/*/approve
        /flows/*/reject /settings
        /inbox/clear /proposals/agents
        /settings/backups/copy /settings/backups/create /settings/backups/proof /settings/backups/recovery
        /settings/backups/recovery/confirm /settings/backups/recovery/file /settings/backups/store
        /settings/backups/store/remove /settings/backups/store/test
        /settings/consent /settings/doctor /settings/domains /settings/domains/*/delete
        /settings/domains/*/rotate
        /settings/domains/*/verify /settings/keys /settings/keys/*/revoke /settings/sending /settings/sending/test
        /settings/sending/rules /settings/sending/rules/* /settings/sending/rules/*/delete
        /settings/sending/rules/*/move /settings/sending/transports /settings/sending/transports/*
        /settings/sending/transports/*/delete /settings/sending/transports/test
        /settings/sending/connect/* /settings/sending/connect/*/device /settings/sending/connect/*/finish
        /settings/sending/connect/*/remove
        /settings/sign-in /settings/sign-in/* /settings/sign-in/*/delete /settings/sign-in/*/test
        /settings/sign-in/password
        /settings/accounts /settings/accounts/*/close /settings/accounts/*/limits /settings/accounts/*/reopen
        /settings/accounts/*/address /settings/accounts/*/address/remove
        /settings/roles /settings/roles/* /settings/roles/*/delete
        /settings/stop /settings/team /settings/team/*/close /settings/team/*/otp-off /settings/team/*/password
        /settings/team/*/reopen /settings/team/*/role /settings/team/invitations/*/resend
        /settings/team/invitations/*/revoke /settings/webhooks /settings/webhooks/*
        /settings/webhooks/*/again /settings/webhooks/*/delete /settings/webhooks/*/secret
        /settings/webhooks/*/switch /settings/webhooks/*/test /welcome /welcome/brand /welcome/domain /welcome/mail
        /welcome/mail/test""",
}
MISSING_ID = "987654321"
# Forms that end the session, or are for anonymous visitors
EXCLUDED = (
    "/login",
    "/logout",
    "/forgot",
    "/reset/*",
    "/invitations/*/*",
    "/setup/*",
    "/setup/*/account-name",
    "/settings/you/sessions/end",
)


def test_the_table_matches_the_routes() -> None:
    """The table has exactly the POST routes of the pages."""
    form_paths = sorted(re.sub(r"<\w+:\w+>", "*", path) for method, path in page_routes() if method == "POST")
    assert sorted(set(form_paths)) == sorted(" ".join(FORMS.values()).split())
    assert {method for method, _ in page_routes()} <= {"GET", "HEAD", "OPTIONS", "POST"}


@pytest.mark.parametrize("role", ["viewer", "author", full_only("editor")])
def test_a_role_submits_only_its_forms(server: Server, role: str) -> None:
    """For missing objects a form returns 403 for other roles only; some, and all with `--full`, also with a slash."""
    server.cli("user", "add", "--email", f"{role}@example.org", "--role", role, stdin=f"{PASSWORD}\n")
    visitor, order = Visitor(server, f"{role}@example.org"), list(FORMS)
    for least_role, forms in FORMS.items():
        allowed = order.index(least_role) <= order.index(role)
        for number, form in enumerate(forms.split()):
            if form in EXCLUDED:
                continue
            path = form.replace("*", MISSING_ID).rstrip("/")
            for target in (path, f"{path}/") if is_full or number % 4 == 0 else (path,):
                response = visitor.send("POST", target)
                assert (response.status != 403) == allowed, (role, target, response.status)
