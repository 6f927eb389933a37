"""The set-up of copies on another machine: the store and its login, the schedule, and the recovery passphrase.

A directory is chosen in the configuration file only, because a page must not make the service write anywhere on its
machine.
"""

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import audit, settings
from appliance.core import errors
from appliance.core.i18n import gettext, gettext_noop
from appliance.ops.copy_jobs import history, recovery, store_check
from appliance.ops.stores.base import StoreError
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.settings.copies import Copies
from appliance.settings.schema import Config
from appliance.storage.transactions import commit, fetch
from ui import forms, view
from ui.forms import Form, FormPart, FormParts
from ui.guard import signed_in
from ui.pages.backups import URL, require_installation_manager
from ui.pages.sending import record_change
from ui.session import Pages, Visit

pages = Pages("ui_backup_store", url_prefix=f"{URL}")

_SECRETS = ("copies.s3.secret_access_key", "copies.sftp.password", "copies.sftp.private_key")
_PLACE = ("kind", "bucket", "folder", "server", "user", "path")
_S3 = ("copies.s3.endpoint", "copies.s3.region", "copies.s3.access_key_id", "copies.s3.secret_access_key")
_SFTP = ("copies.sftp.host_key", "copies.sftp.password", "copies.sftp.private_key")
_SCHEDULE = (
    "copies.every", "copies.prove_every", "copies.keep_days", "copies.keep_weeks", "copies.keep_months",
    "copies.megabits_per_second",
)  # fmt: skip
_SHOWN = tuple(name for name in (*_S3, *_SFTP, *_SCHEDULE) if name not in _SECRETS)
_PARTS = FormParts(
    FormPart(gettext_noop("Place"), _PLACE),
    FormPart(gettext_noop("Service URL"), ("copies.s3.endpoint",)),
    FormPart(gettext_noop("Region"), ("copies.s3.region",)),
    FormPart(gettext_noop("Access key ID"), ("copies.s3.access_key_id",)),
    FormPart(gettext_noop("Key of the server"), ("copies.sftp.host_key",)),
    FormPart(gettext_noop("Make a copy"), ("copies.every",)),
    FormPart(gettext_noop("Test the newest copy"), ("copies.prove_every",)),
    FormPart(gettext_noop("Days"), ("copies.keep_days",)),
    FormPart(gettext_noop("Weeks"), ("copies.keep_weeks",)),
    FormPart(gettext_noop("Months"), ("copies.keep_months",)),
    FormPart(gettext_noop("Upload limit in Mbit/s"), ("copies.megabits_per_second",)),
)
EVERY = (
    ("1h", gettext_noop("every hour")), ("6h", gettext_noop("every 6 hours")), ("12h", gettext_noop("every 12 hours")),
    ("24h", gettext_noop("every day")), ("7d", gettext_noop("every week")), ("0s", gettext_noop("only on request")),
)  # fmt: skip
PROVE_EVERY = (
    ("24h", gettext_noop("every day")), ("7d", gettext_noop("every week")), ("30d", gettext_noop("every 30 days")),
    ("0s", gettext_noop("only on request")),
)  # fmt: skip
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_FOLDER = re.compile(r"[A-Za-z0-9._/-]{0,300}")
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")
_FIELD_ERRORS = {
    "copies.s3.secret_access_key": gettext_noop("Enter the secret access key for this storage and key ID."),
    "copies.s3.access_key_id": gettext_noop("Enter the access key ID."),
    "copies.s3.endpoint": gettext_noop("Enter the address of the service, such as https://s3.example.com."),
    "copies.s3.region": gettext_noop("Enter the region of the bucket, such as eu-central-1."),
    "copies.sftp.password": gettext_noop("Enter the password for this server."),
    "copies.sftp.private_key": gettext_noop("Enter a password or a private key for this server."),
    "copies.sftp.host_key": gettext_noop("Paste the public key of the server, as ssh-keyscan prints it."),
    "copies.keep_days": gettext_noop("Enter a whole number from 1 to 3660."),
    "copies.keep_weeks": gettext_noop("Enter a whole number from 0 to 520."),
    "copies.keep_months": gettext_noop("Enter a whole number from 0 to 240."),
    "copies.megabits_per_second": gettext_noop("Enter a number. 0 means no limit."),
}
# The titles of a failed connection test, by the code of the error.
_TEST_TITLES = {
    "unreachable": gettext_noop("The backup storage cannot be reached"),
    "refused": gettext_noop("The backup storage rejected the login"),
    "missing": gettext_noop("The bucket or folder does not exist"),
    "store_full": gettext_noop("The backup storage is full"),
}
_OTHER_FAILURE = gettext_noop("The backup storage cannot be used with these settings")
_TEST_TIMEOUT_SECONDS = 30.0


@pages.get("/store")
@signed_in("account:write")
async def show_store(request: Request, visit: Visit) -> HTTPResponse:
    """Show the form of the store, its login and the schedule."""
    require_installation_manager(visit)
    return _render(request, forms.open_form(_build_form(), _PARTS))


@pages.post("/store")
@signed_in("account:write")
@forms.retry_on_change
async def save_store(request: Request, visit: Visit) -> HTTPResponse:
    """Save the store and the schedule; then ask for the recovery passphrase, unless a key can read copies already."""
    require_installation_manager(visit)
    form = Form.from_request(request)
    forms.merge_form(form, _PARTS, _build_form())
    if form.conflicts:
        return _render(request, form, 409)
    values = _read_values(form)

    def build_stored() -> Form:
        return _build_form(config.get_loaded().with_pages(settings.load()).config)

    try:
        if form.errors:
            raise errors.Invalid({})
        loaded = await commit(
            forms.write_if_unchanged, form, _PARTS, build_stored, lambda: record_change(visit, settings.save, values)
        )
    except errors.Invalid as error:
        return _render(request, _add_errors(form, error), 422)
    _apply(request, loaded)
    view.flash(request, gettext("Saved."))
    return view.redirect(request, URL)


@pages.post("/store/test")
@signed_in("account:write")
async def test_store(request: Request, visit: Visit) -> HTTPResponse:
    """Write, read and delete a small file in the store of the form, and say in plain words whether that worked."""
    require_installation_manager(visit)
    form = Form.from_request(request)
    values = {name: value for name, value in _read_values(form).items() if value is not None}
    try:
        if form.errors:
            raise errors.Invalid({})
        copies = (await fetch(settings.build_config, values)).config.copies
    except errors.Invalid as error:
        return _render(request, _add_errors(form, error), 422)
    return _render(request, form, test_result=await _check(copies))


async def _check(copies: Any) -> dict[str, Any]:
    """Return the result of a connection test as a dict of `good`, `title` and `words`."""
    try:
        async with asyncio.timeout(_TEST_TIMEOUT_SECONDS):
            await store_check.check_in_thread(copies)
    except StoreError as error:
        title = _TEST_TITLES.get(store_check.name_error(error), _OTHER_FAILURE)
        return {"good": False, "title": gettext(title), "words": str(error)}
    except TimeoutError:
        return {"good": False, "title": gettext(_TEST_TITLES["unreachable"]),
                "words": gettext("There was no answer within %(seconds)s seconds.",
                                 seconds=round(_TEST_TIMEOUT_SECONDS))}  # fmt: skip
    words = gettext("A small file was written, read and deleted.")
    return {"good": True, "title": gettext("The connection works"), "words": words}


@pages.post("/store/remove")
@signed_in("account:write")
async def remove_store(request: Request, visit: Visit) -> HTTPResponse:
    """Turn copies off and forget the login of the store. The copies in the store stay, and so does the passphrase."""
    require_installation_manager(visit)
    names = [name for name in ("copies.store", *_S3, *_SFTP) if settings.can_set(name)]

    def write() -> LoadedConfig:
        history.withdraw_requests()
        return record_change(visit, settings.save, dict.fromkeys(names))

    _apply(request, await commit(write))
    view.flash(request, gettext("Copies are turned off. Those in the backup storage were not deleted."))
    return view.redirect(request, URL)


@pages.post("/recovery")
@signed_in("account:write")
async def show_recovery(request: Request, visit: Visit) -> HTTPResponse:
    """Generate a recovery passphrase and show it once; it is used only after the user has confirmed to keep it."""
    require_installation_manager(visit)
    return _render_recovery(request, visit, recovery.generate(), Form())


@pages.post("/recovery/file")
@signed_in("account:write")
async def download_recovery(request: Request, visit: Visit) -> HTTPResponse:
    """Return the recovery passphrase that the page shows as a text file."""
    require_installation_manager(visit)
    passphrase = recovery.unseal(Form.from_request(request).raw("sealed"), visit.actor.name)
    if passphrase is None:
        raise errors.NotFound
    lines = (
        gettext("Recovery passphrase of Campanero at %(url)s", url=config.base_url(config.current())), "",
        passphrase, "",
        gettext("Keep this file apart from the server and from the backup storage. With it and the storage, everything "
                "can be restored. Without it, nobody can read the copies."), "",
        *_describe_login(config.current().copies),
        f"campanero restore {config.current().copies.store}", "",
    )  # fmt: skip
    headers = {"content-disposition": 'attachment; filename="campanero-recovery.txt"', "cache-control": "no-store"}
    return HTTPResponse("\n".join(lines), 200, headers, "text/plain; charset=utf-8")


def _describe_login(copies: Copies) -> list[str]:
    """Return lines with the configuration by which a new server reaches the storage; its secret is left empty."""
    scheme = urlsplit(copies.store).scheme
    if scheme == "s3":
        values = {
            "endpoint": copies.s3.endpoint, "region": copies.s3.region, "access_key_id": copies.s3.access_key_id,
            "secret_access_key": "",
        }  # fmt: skip
    elif scheme == "sftp":
        values = {"host_key": copies.sftp.host_key, "password": ""}
    else:
        return []
    words = gettext("Write this into the configuration file of the new server first, with the secret of the storage:")
    return [words, "", f"[copies.{scheme}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items()), ""]


@pages.post("/recovery/confirm")
@signed_in("account:write")
async def confirm_recovery(request: Request, visit: Visit) -> HTTPResponse:
    """Use a recovery passphrase for all further copies, once the user has entered its end from where it is kept."""
    require_installation_manager(visit)
    form = Form.from_request(request)
    passphrase = recovery.unseal(form.raw("sealed"), visit.actor.name)
    if passphrase is None:
        view.flash(request, gettext("This passphrase is too old. Make a new one."))
        return view.redirect(request, URL)
    if form["kept"] != "yes":
        form.add_error("kept", gettext("Confirm that the passphrase is kept in another place."))
    if not recovery.is_confirmed(passphrase, form["end"]):
        form.add_error("end", gettext("Enter the last five characters of the passphrase, from where you keep it."))
    if form.errors:
        return _render_recovery(request, visit, passphrase, form, 422)
    public_key = await asyncio.to_thread(recovery.use, Path(config.current().data_dir), passphrase)
    await commit(audit.record, visit.actor, visit.account_id, "copies_recovery_set", None, {"key": public_key})
    view.flash(request, gettext("The passphrase is set. It opens each further copy."))
    return view.redirect(request, URL)


def _apply(request: Request, loaded: LoadedConfig) -> None:
    """Make saved settings the active ones. Senders are not replaced, because no setting of theirs has changed."""
    config.set_current(loaded.config, loaded)
    request.app.ctx.config = loaded.config


def _build_form(loaded: Config | None = None) -> Form:
    """Return a form with the stored settings, by default the active ones; secrets are left empty."""
    loaded = loaded or config.current()
    parts = urlsplit(loaded.copies.store)
    values = {name: _format(config.get_value(loaded, name)) for name in _SHOWN} | dict.fromkeys(_SECRETS, "")
    values |= dict.fromkeys(_PLACE, "") | {"kind": parts.scheme or "s3"}
    if parts.scheme == "s3":
        values |= {"bucket": parts.netloc, "folder": parts.path.strip("/")}
    elif parts.scheme == "sftp":
        user, _, server = parts.netloc.rpartition("@")
        values |= {"user": unquote(user), "server": server, "path": parts.path}
    return Form(values)


def _format(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _read_values(form: Form) -> dict[str, Any]:
    """Return the settings of a form by dotted name, None to reset one; add errors for an unusable place.

    An empty secret leaves the stored one unchanged. The login of the other kind of store is deleted.
    """
    kind = form["kind"]
    used, unused = (_SFTP, _S3) if kind == "sftp" else (_S3, _SFTP)
    values: dict[str, Any] = {name: form.text(name) for name in (*used, *_SCHEDULE) if name in form.values}
    for name in used:
        if name in _SECRETS:
            values[name] = form.raw(name).replace("\r\n", "\n").strip() or None
            if values[name] is None:
                del values[name]
    if settings.can_set("copies.store"):
        values["copies.store"] = _read_place(form, kind)
        values |= dict.fromkeys(unused)
    return {name: value for name, value in values.items() if settings.can_set(name)}


def _read_place(form: Form, kind: str) -> str | None:
    """Return the URL of the store, and add an error to each field of it that is unusable."""
    if kind == "s3":
        if not _BUCKET.fullmatch(form["bucket"]):
            form.add_error("bucket", gettext("Enter the name of the bucket."))
        if not _FOLDER.fullmatch(form["folder"]):
            form.add_error("folder", gettext("Use only letters, digits and . _ - / in the folder."))
        folder = form["folder"].strip("/")
        return f"s3://{form['bucket']}{'/' if folder else ''}{folder}"
    if kind == "sftp":
        if not _SERVER.fullmatch(form["server"]):
            form.add_error("server", gettext("Enter the name of the server, such as backup.example.com."))
        if not form["user"]:
            form.add_error("user", gettext("Enter the user name."))
        if not _FOLDER.fullmatch(form["path"]):
            form.add_error("path", gettext("Use only letters, digits and . _ - / in the folder."))
        path = form["path"]
        return f"sftp://{quote(form['user'], safe='')}@{form['server']}{'' if path.startswith('/') else '/'}{path}"
    form.add_error("kind", gettext("Select one of the options."))
    return None


def _add_errors(form: Form, error: errors.Invalid) -> Form:
    """Add the errors of settings to their fields, as sentences; those of fields that are not shown go above."""
    for name, messages in error.fields.items():
        known = name in form.values and name in _FIELD_ERRORS
        form.add_error(name if known else "base", gettext(_FIELD_ERRORS[name]) if known else f"{name}: {messages[0]}")
    return form


def _render(
    request: Request, form: Form, status: int = 200, *, test_result: dict[str, Any] | None = None
) -> HTTPResponse:
    loaded = config.get_loaded()
    names = ("copies.store", *_S3, *_SFTP, *_SCHEDULE)
    return view.render(
        request, "settings/backup_store.html", status, form=form, test_result=test_result,
        is_on=bool(loaded.config.copies.store), kind=form["kind"],
        locked={name: loaded.sources[name] for name in names if not settings.can_set(name)},
        stored={name for name in _SECRETS if config.get_value(loaded.config, name)},
        every=_with_current(EVERY, form["copies.every"]),
        prove_every=_with_current(PROVE_EVERY, form["copies.prove_every"]),
    )  # fmt: skip


def _with_current(choices: tuple[tuple[str, str], ...], value: str) -> tuple[tuple[str, str], ...]:
    """Return the choices of a duration, and the current value if it is none of them."""
    return choices if value in dict(choices) else (*choices, (value, value))


def _render_recovery(request: Request, visit: Visit, passphrase: str, form: Form, status: int = 200) -> HTTPResponse:
    return view.render(
        request, "settings/backup_recovery.html", status, form=form, passphrase=passphrase,
        sealed=recovery.seal(passphrase, visit.actor.name), replaces=recovery.is_set(Path(config.current().data_dir)),
    )  # fmt: skip
