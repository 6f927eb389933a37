"""Imports: handed in, found, listed, stopped, asked back."""

import shutil
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.accounts import accounts
from appliance.audience.contacts import lists
from appliance.core import addresses, clock, data_dir, wake_ups
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.fields import Country, Id, Line, Name, PageQuery
from appliance.core.pagination import Page, paginate
from appliance.core.transitions import Action, Standing, refusal
from appliance.core.validation import RefusedKeys, use_instead, use_within
from appliance.imports import columns, stage
from appliance.imports.stage import Look
from appliance.settings import config
from appliance.storage.models import Import
from appliance.storage.open import fetch_one, name_key, rows
from appliance.storage.work import after_commit, writing

# How a file is handed in, and how imports are asked for.

Column = Annotated[str, Meta(max_length=300)]


class ImportOptions(Struct):
    """What an import does; `map` names where columns go, those it does not name go where their name says.

    `list_names` are lists that everybody joins beside `list_ids`; those that are missing are made. `default_country` is
    that of phone numbers without country code: the account's where nothing is said, none with null. `date_order` is how
    dates are written where no value of a column tells.
    """

    REFUSED: ClassVar[RefusedKeys] = {
        **use_instead("the form field `resource` beside `options`", "resource"),
        **use_instead("the query parameter `dry_run`", "dry_run"),
        **use_instead("`opt_in`", "subscribed", "subscribe", "subscribed_email", "opted_in"),
    }

    map: dict[str, str | None] = field(default_factory=dict)
    list_ids: Annotated[list[Id], Meta(max_length=500)] = field(default_factory=list)
    list_names: Annotated[list[Name], Meta(max_length=20)] = field(default_factory=list)
    on_conflict: Literal["merge", "skip"] = "merge"
    opt_in: bool = True
    consent_source: Annotated[str, Meta(max_length=1000)] | None = None
    trigger_flows: bool = False
    default_country: Country | None | UnsetType = UNSET
    date_order: Literal["dmy", "mdy"] | None = None


class ImportForm(Struct):
    """The texts beside the file; `options` is JSON (see ImportOptions)."""

    REFUSED: ClassVar[RefusedKeys] = {
        **use_instead("the query parameter `dry_run`", "dry_run"),
        **use_within("options", *ImportOptions.__struct_fields__),
    }

    resource: Literal["contacts", "suppressions"] = "contacts"
    options: str | UnsetType = UNSET


class DryRunQuery(Struct):
    """Whether a file is only looked at."""

    dry_run: bool = False


class ImportQuery(PageQuery):
    """Filters of the list of imports."""

    resource: Literal["contacts", "suppressions"] | UnsetType = UNSET
    status: Literal["pending", "processing", "complete", "failed", "cancelled"] | UnsetType = UNSET


class Upload(Struct):
    """A file that has come, still where it was received."""

    path: str
    filename: Line
    bytes: int
    resource: Literal["contacts", "suppressions"]
    options: ImportOptions
    dry_run: bool = False


UNDO_MS = 24 * 3600 * 1000
# Files and results
KEPT_MS = 7 * 24 * 3600 * 1000
OPEN = ("pending", "processing")
ACTIONS = {
    "cancel": Action("cancelled", "cancelled", OPEN), "undo": Action("undone", "undone", ("complete", "cancelled")),
    # Of a dry run
    "apply": Action("applied", "pending", ("complete",)), "discard": Action("discarded", "discarded", ("complete",)),
}  # fmt: skip
# Why an undo leaves a contact that the import made
LEFT = ("changed", "messaged", "in_another_list")
# A file of which nobody has said yet what its columns are
MAPPING = "mapping"


def directory(import_id: int | None = None) -> Path:
    """Return where files of imports are kept: beside the database, private as all of it."""
    base = Path(config.current().data_dir) / "imports"
    base.mkdir(mode=0o700, exist_ok=True)
    return base if import_id is None else base / str(import_id)


def look(upload: Upload, *, mapped: bool = True) -> Look:
    """Look at the beginning of a file and check what was asked against it; raises Invalid. Brings the file to disk.

    Which column is the address need not be known before the columns are `mapped`.
    """
    faults, seen = Faults(), None
    try:
        seen = stage.look(Path(upload.path))
    except stage.Unreadable as fault:
        faults.add("file", str(fault))
    for name, target in upload.options.map.items():
        if seen is not None and name not in seen.names and seen.format == "csv":
            faults.add(f"options.map.{name}", "must exist")
        elif target and target not in columns.TARGETS and not (target.startswith("data.") and len(target) > 5):
            faults.add(f"options.map.{name}", "is not included in the list")
    goes = stage.targets(seen.names, upload.resource, upload.options.map) if seen is not None else []
    if seen is not None and mapped and not {"email", "phone", "channels"} & set(goes):
        faults.add("file", "has no column of addresses")
    faults.check()
    assert seen is not None  # without faults there is a file
    data_dir.settle(Path(upload.path))
    return seen


def check_lists(account_id: int, options: ImportOptions) -> None:
    """Raise Invalid for lists that are not there, or take no members."""
    _settled(account_id, options, dry_run=True)


def create(account_id: int, upload: Upload, seen: Look, actor: str) -> Import:
    """Take a file that was looked at; raises Invalid for lists that take no members. Its job starts at once.

    The file is on disk, and the way to it, before the import is.
    """
    writing()
    made = _made(account_id, upload, seen, actor, {"status": "pending", "dry_run": upload.dry_run})
    after_commit(lambda: wake_ups.ring("imports"))
    return get(account_id, made.id)


def hold(account_id: int, upload: Upload, seen: Look, actor: str) -> Import:
    """Keep a file that was looked at until somebody has said what its columns are; nothing is read before `check`.

    It stands like one that was checked and of which nothing came yet, in the phase `mapping`.
    """
    writing()
    state = {"status": "complete", "phase": MAPPING, "dry_run": True}
    return get(account_id, _made(account_id, upload, seen, actor, state).id)


def _made(account_id: int, upload: Upload, seen: Look, actor: str, state: dict[str, Any]) -> Import:
    now = clock.now_ms()
    made = Import.create(
        account=account_id, resource=upload.resource, filename=upload.filename, bytes=upload.bytes, format=seen.format,
        product=seen.product, columns=_columns(upload, seen),
        options=msgspec.to_builtins(_settled(account_id, upload.options, bool(state["dry_run"]))), actor=actor,
        created_at=now, updated_at=now, **state,
    )  # fmt: skip
    directory(made.id).mkdir(mode=0o700, exist_ok=True)
    Path(upload.path).replace(directory(made.id) / "upload")
    data_dir.settle(directory(made.id))
    data_dir.settle(directory())
    return made


def _settled(account_id: int, options: ImportOptions, dry_run: bool) -> ImportOptions:
    """Return what was asked with the lists it names among its `list_ids`; a check makes none of them. Raises Invalid
    for lists that take no members.
    """
    ids = list(options.list_ids)
    for name in options.list_names:
        known = fetch_one(
            "SELECT id FROM contact_list WHERE account_id = ? AND name_key = ?", (account_id, name_key(name))
        )
        if known or not dry_run:
            ids.append(int(known[0]) if known else lists.create(account_id, lists.ListCreate(name)).id)
    country = options.default_country
    if country is UNSET:
        country = accounts.get(account_id).country_code
    settled = msgspec.structs.replace(options, list_ids=list(dict.fromkeys(ids)), default_country=country)
    _check_lists(account_id, settled)
    return settled


def _columns(upload: Upload, seen: Look) -> list[dict[str, Any]]:
    goes = stage.targets(seen.names, upload.resource, upload.options.map)
    return [
        {"name": name, "target": target, "samples": [_sample(row, index) for row in seen.samples]}
        for index, (name, target) in enumerate(zip(seen.names, goes, strict=True))
    ]


def _sample(row: list[str], index: int) -> str:
    return row[index][:100] if index < len(row) else ""


def _check_lists(account_id: int, options: ImportOptions) -> None:
    faults = Faults()
    if options.default_country and options.default_country not in addresses.countries():
        faults.add("options.default_country", "is not included in the list")
    found = lists.faults(account_id, options.list_ids)
    faults.merge({f"options.{name}": messages for name, messages in found.items()})
    for list_id in options.list_ids:
        if fetch_one("SELECT 1 FROM contact_list WHERE id = ? AND segment_id IS NOT NULL", (list_id,)):
            faults.add("options.list_ids", "a list that mirrors a segment takes no members by name")
    faults.check()


def look_again(account_id: int, import_id: int, options: ImportOptions) -> tuple[Upload, Look]:
    """Look at a file that was only checked so far, with what is asked of it now; raises NotFound or Invalid."""
    found = _only_checked(account_id, import_id)
    resource: Any = found.resource  # a column of text, of which the model knows no more
    upload = Upload(str(directory(import_id) / "upload"), found.filename, found.bytes, resource, options)
    return upload, look(upload)


def apply(account_id: int, import_id: int, upload: Upload, seen: Look, actor: str) -> Import:
    """Apply a file that was looked at again, from its beginning: the outcomes of the check are forgotten.

    It counts as handed in now, for its results as for the day in which it can be undone.
    """
    return _again(account_id, import_id, upload, seen, actor, dry_run=False)


def check(account_id: int, import_id: int, upload: Upload, seen: Look, actor: str) -> Import:
    """Check a file that was looked at again, from its beginning and with what is asked of it now."""
    return _again(account_id, import_id, upload, seen, actor, dry_run=True)


def _again(account_id: int, import_id: int, upload: Upload, seen: Look, actor: str, *, dry_run: bool) -> Import:
    writing()
    found = _only_checked(account_id, import_id)
    found.options = msgspec.to_builtins(_settled(account_id, upload.options, dry_run))
    found.columns, found.actor = _columns(upload, seen), actor
    found.dry_run, found.status, found.phase, found.cursor = dry_run, "pending", None, []
    found.error = found.cancel_asked_at = found.completed_at = found.undo_until = None
    found.total = found.processed = found.created = found.updated = found.skipped = found.failed = found.warnings = 0
    found.arriving, found.left_in_place = {}, {}
    found.created_at = found.updated_at = clock.now_ms()
    found.save()
    after_commit(lambda: wake_ups.ring("imports"))
    return found


def _only_checked(account_id: int, import_id: int) -> Import:
    found = get(account_id, import_id)
    if not found.dry_run or found.status in OPEN:
        raise _refusal(found, "apply")
    if not is_kept(import_id):
        raise Invalid({"base": ["the file is not kept any more; hand it in again"]})
    return found


def is_kept(import_id: int) -> bool:
    """Return whether the file of an import is still there."""
    return (directory(import_id) / "upload").exists()


def discard(account_id: int, import_id: int) -> Import:
    """Forget an import that wrote nothing, with its file, and answer it; raises NotFound, or Invalid for any other."""
    writing()
    found = get(account_id, import_id)
    if not found.dry_run or found.status in OPEN:
        raise _refusal(found, "discard")
    found.delete_instance(recursive=False)
    after_commit(lambda: shutil.rmtree(directory(import_id), ignore_errors=True))
    return found


def get(account_id: int, import_id: int) -> Import:
    """Return an import; raises NotFound."""
    found = Import.get_or_none(Import.account == account_id, Import.id == import_id)
    if found is None:
        raise NotFound
    return found


def page(account_id: int, query: ImportQuery) -> Page:
    """List imports, newest first."""
    found = Import.select().where(Import.account == account_id)
    for name in ("resource", "status"):
        value = getattr(query, name)
        if value is not UNSET:
            found = found.where(getattr(Import, name) == value)
    return paginate(found.order_by(Import.created_at.desc(), Import.id.desc()), query.page, query.size())


def cancel(account_id: int, import_id: int) -> Import:
    """Stop an import: at once if it waits, else before its next transaction. What it did stays until it is undone."""
    writing()
    found = get(account_id, import_id)
    if found.status not in OPEN or found.phase == "undoing":
        raise _refusal(found, "cancel")
    now = clock.now_ms()
    found.cancel_asked_at = found.updated_at = now
    if found.status == "pending":
        found.status, found.completed_at = "cancelled", now
    found.save()
    return found


def undo(account_id: int, import_id: int) -> Import:
    """Take an import back, within 24 hours of its end; raises NotFound or Invalid. The work is a job of its own."""
    writing()
    found = get(account_id, import_id)
    late = found.undo_until is None or found.undo_until < clock.now_ms()
    if found.status not in ("complete", "cancelled") or found.dry_run or found.phase is not None or late:
        raise _refusal(found, "undo")
    found.phase, found.updated_at = "undoing", clock.now_ms()
    found.save()
    after_commit(lambda: wake_ups.ring("imports"))
    return found


def _refusal(found: Import, action: str) -> Invalid:
    is_open = found.status in OPEN and found.phase != "undoing"
    why = ""
    if action == "undo" and found.dry_run:
        why = "A dry run writes nothing."
    elif found.phase in ("undoing", "undone"):
        why = "It is being undone." if found.phase == "undoing" else "It was undone."
    elif action == "undo" and found.status not in OPEN and found.undo_until is not None:
        why = "It ended more than 24 hours ago."
    standing = Standing(found.status, ["cancelled"] if is_open else [], ["cancel"] if is_open else [])
    return refusal("import", standing, action, ACTIONS[action], why)


def is_due() -> bool:
    """Return whether an import waits for work."""
    return bool(
        rows("SELECT 1 FROM import WHERE status IN ('pending', 'processing') LIMIT 1")
        or rows("SELECT 1 FROM import WHERE phase = 'undoing' LIMIT 1")
    )


def options(found: Import) -> ImportOptions:
    """Return what an import was asked for."""
    return msgspec.convert(found.options, ImportOptions)


def arriving(found: Import) -> dict[str, int]:
    """Return how many contacts of an import are subscribed, unsubscribed and suppressed in the end."""
    counts = dict.fromkeys(("subscribed", "unsubscribed", "suppressed"), 0)
    for state, number in found.arriving.items():
        counts[state.partition(":")[0]] += number
    return counts


def reasons(found: Import) -> dict[str, int]:
    """Return why contacts of an import are not subscribed, each reason with its number."""
    counts: dict[str, int] = {}
    for state, number in found.arriving.items():
        why = state.partition(":")[2]
        if why and number:
            counts[why] = counts.get(why, 0) + number
    return counts


def summary(found: Import) -> dict[str, Any]:
    """Return the numbers of an import."""
    return {name: getattr(found, name) for name in ("total", "created", "updated", "skipped", "failed", "warnings")}
