"""Create, list, check, apply, cancel, undo and discard imports."""

import shutil
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.accounts import accounts, limits
from appliance.audience import lists
from appliance.core import addresses, clock, data_dir, signals
from appliance.core.errors import (
    CurrentState,
    Faults,
    Invalid,
    NotFound,
    RefusedKeys,
    Transition,
    refuse_transition,
    use_instead,
    use_within,
)
from appliance.core.i18n import gettext, gettext_noop, translate_stored
from appliance.core.validation import Country, Id, Line, Name, PageQuery
from appliance.imports import columns, detection, file_reader
from appliance.imports.file_reader import FilePreview
from appliance.settings import config
from appliance.storage.database import Page, fetch_one, normalize_name, paginate, rows, scalar
from appliance.storage.models import Import
from appliance.storage.transactions import after_commit, require_write_transaction

Column = Annotated[str, Meta(max_length=300)]


class ImportOptions(Struct):
    """The options of an import.

    `map` sets the targets of columns by name; other targets are guessed from the names. All contacts of the file join
    the lists `list_ids` and `list_names`; the latter are created if missing. `default_country` is the country of phone
    numbers without a country code: the account's country if omitted, none if null. `date_order` is the order of dates
    in columns whose values do not show it, and `decimal_mark` the decimal mark of numbers in such columns.
    `column_types` sets the types of custom data by column name; other types are found from the values.
    """

    REFUSED: ClassVar[RefusedKeys] = {
        **use_instead("the form field `resource` beside `options`", "resource"),
        **use_instead("the query parameter `dry_run`", "dry_run"),
        **use_instead("`opt_in`", "subscribed", "subscribe", "subscribed_email", "opted_in"),
    }

    map: Annotated[
        dict[str, str | None],
        Meta(
            description="fields for columns, by column name; null skips a column; columns not listed are "
            "mapped by their name; a column of last names whose values are like `Last, First` is a full name"
        ),
    ] = field(default_factory=dict)
    list_ids: Annotated[
        list[Id], Meta(max_length=500), Meta(description="ids of the lists that all imported contacts join")
    ] = field(default_factory=list)
    list_names: Annotated[
        list[Name], Meta(max_length=20), Meta(description="names of further lists; missing lists are created")
    ] = field(default_factory=list)
    on_conflict: Annotated[
        Literal["merge", "skip"],
        Meta(description="what to do with existing contacts: `merge` updates them, `skip` leaves them unchanged"),
    ] = "merge"
    opt_in: Annotated[
        bool, Meta(description="whether the addresses are opted in; never lifts an opt-out made by the contact")
    ] = True
    opt_in_phone: (
        Annotated[
            bool,
            Meta(description="whether phone numbers are opted in to SMS; default: as `opt_in`"),
        ]
        | None
    ) = None
    opt_in_unstated: Annotated[
        bool,
        Meta(
            description="whether `opt_in` includes rows that say neither yes nor no: their cells in the columns of "
            "consent are empty or unreadable"
        ),
    ] = True
    consent_source: (
        Annotated[
            str,
            Meta(max_length=1000),
            Meta(description="where the contact consented and to which text, stored as evidence"),
        ]
        | None
    ) = None
    trigger_flows: Annotated[
        bool, Meta(description="whether the import starts flows as if each contact had been added individually")
    ] = False
    default_country: (
        Annotated[
            Country,
            Meta(
                description="two-letter country code for phone numbers without a country code; default: that of "
                "the account; null for none"
            ),
        ]
        | None
        | UnsetType
    ) = UNSET
    date_order: (
        Annotated[
            Literal["dmy", "mdy"],
            Meta(
                description="order of day and month in dates such as 03/04/2026, for columns whose values do not "
                "show it; without it, these are stored as text"
            ),
        ]
        | None
    ) = None
    decimal_mark: (
        Annotated[
            Literal[",", "."],
            Meta(
                description="decimal mark of numbers such as 1.234 or 1,234, for columns whose values do not show it; "
                "default: that of the file's other columns, else of `default_country`"
            ),
        ]
        | None
    ) = None
    column_types: Annotated[
        dict[str, Literal["text", "number", "date"]],
        Meta(
            description="types of columns that go to `data`, by column name: `text` keeps every value as it is, "
            "`number` converts those that are numbers, `date` converts dates, and the day numbers of spreadsheets such "
            "as 45123; other columns are numbers or dates if their values are"
        ),
    ] = field(default_factory=dict)


class ImportForm(Struct):
    """The form fields of an upload, in addition to the file; `options` is JSON (see ImportOptions)."""

    REFUSED: ClassVar[RefusedKeys] = {
        **use_instead("the query parameter `dry_run`", "dry_run"),
        **use_within("options", *ImportOptions.__struct_fields__),
    }

    resource: Annotated[
        Literal["contacts", "suppressions"], Meta(description="kind of objects to import; default: `contacts`")
    ] = "contacts"
    options: Annotated[str, Meta(description="options as JSON (see ImportOptions)")] | UnsetType = UNSET


class DryRunQuery(Struct):
    """The query parameter of a dry run, which checks a file and writes nothing."""

    dry_run: Annotated[bool, Meta(description="true to only report what would be done")] = False


class ImportQuery(PageQuery):
    """Filters of the list of imports."""

    resource: (
        Annotated[Literal["contacts", "suppressions"], Meta(description="only imports of this kind")] | UnsetType
    ) = UNSET
    status: (
        Annotated[
            Literal["pending", "processing", "complete", "failed", "cancelled"],
            Meta(description="only those with this status"),
        ]
        | UnsetType
    ) = UNSET


class Upload(Struct):
    """An uploaded file at `path`, with its name, its size in bytes and the options of its import."""

    path: str
    filename: Line
    bytes: int
    resource: Literal["contacts", "suppressions"]
    options: ImportOptions
    dry_run: bool = False


UNDO_MS = clock.DAY_MS
# How long files and results are stored after the end of the dry run or import
RETENTION_MS = 7 * clock.DAY_MS
OPEN_STATUSES = ("pending", "processing")
ACTIONS = {
    "cancel": Transition(
        gettext_noop("An import with the status %(status)s cannot be cancelled."), "cancelled", OPEN_STATUSES
    ),
    "undo": Transition(
        gettext_noop("An import with the status %(status)s cannot be undone."), "undone", ("complete", "cancelled")
    ),
    # These actions are for dry runs.
    "apply": Transition(
        gettext_noop("An import with the status %(status)s cannot be applied."), "pending", ("complete",)
    ),
    "discard": Transition(
        gettext_noop("An import with the status %(status)s cannot be discarded."), "discarded", ("complete",)
    ),
}
# The reasons why an undo keeps a contact that the import created
KEEP_REASONS = ("changed", "messaged", "in_another_list")
_MAX_LABELLED_IMPORTS = 20
# The phase of an import whose columns the user has not confirmed yet
MAPPING = "mapping"


def import_directory(import_id: int | None = None) -> Path:
    """Return the directory of an import's files, or of all imports if no id is given.

    Only the directory of all imports is created here.
    """
    base = Path(config.current().data_dir) / "imports"
    base.mkdir(mode=0o700, exist_ok=True)
    return base if import_id is None else base / str(import_id)


def preview(upload: Upload, *, mapped: bool = True) -> FilePreview:
    """Return the preview of an uploaded file, and sync the file to disk.

    With `mapped=False`, no column of addresses is required, because the user maps the columns later. Raises Invalid if
    the file cannot be read as a table, or if the options do not match its columns.
    """
    faults, file_preview = Faults(), None
    try:
        file_preview = file_reader.preview_file(Path(upload.path))
    except file_reader.UnreadableFile as fault:
        faults.add("file", translate_stored(str(fault)))
    for name, target in upload.options.map.items():
        if file_preview is not None and name not in file_preview.names and file_preview.format == "csv":
            faults.add(f"options.map.{name}", gettext("must exist"))
        elif target and target not in columns.TARGETS and not (target.startswith("data.") and len(target) > 5):
            faults.add(f"options.map.{name}", gettext("is not included in the list"))
    for name in upload.options.column_types:
        if file_preview is not None and name not in file_preview.names and file_preview.format == "csv":
            faults.add(f"options.column_types.{name}", gettext("must exist"))
    targets = (
        file_reader.assign_targets(file_preview, upload.resource, upload.options.map)
        if file_preview is not None
        else []
    )
    if file_preview is not None and mapped and not {"email", "phone", "channels"} & set(targets):
        faults.add("file", gettext("has no column of addresses"))
    faults.check()
    assert file_preview is not None  # Otherwise `faults` has the reason and `check` raises.
    data_dir.sync_to_disk(Path(upload.path))
    return file_preview


def check_options(account_id: int, options: ImportOptions) -> None:
    """Raise Invalid if a list does not exist or mirrors a segment, or the default country is unknown."""
    _resolve_options(account_id, options, dry_run=True)


def create(account_id: int, upload: Upload, file_preview: FilePreview, actor: str) -> Import:
    """Create an import of a previewed file, and wake the import worker. Raises Invalid as `check_options` does.

    The file is moved to the directory of the import, and the directory is synced to disk before the commit.
    """
    require_write_transaction()
    job = _create(account_id, upload, file_preview, actor, {"status": "pending", "dry_run": upload.dry_run})
    after_commit(lambda: signals.wake("imports"))
    return get(account_id, job.id)


def create_unmapped(account_id: int, upload: Upload, file_preview: FilePreview, actor: str) -> Import:
    """Create an import whose columns the user confirms later, with `check` or `apply`.

    Until then it is a completed dry run without outcomes, in the phase `mapping`. If an earlier import of the account
    had the same columns, its targets, column types and `consent_source` are proposed. Raises Invalid as `create` does.
    """
    require_write_transaction()
    state = {"status": "complete", "phase": MAPPING, "dry_run": True}
    if (previous := _find_last_with_columns(account_id, upload.resource, file_preview.names)) is not None:
        options = get_options(previous)
        upload.options = msgspec.structs.replace(
            upload.options,
            map={column["name"]: column["target"] for column in previous.columns},
            column_types=options.column_types,
            consent_source=options.consent_source,
        )
    return get(account_id, _create(account_id, upload, file_preview, actor, state).id)


# The number of last imports of an account whose columns are compared with those of a new file
_MAX_SEARCHED_IMPORTS = 50


def _find_last_with_columns(account_id: int, resource: str, column_names: list[str]) -> Import | None:
    """Return the account's last import whose file had the same columns and whose mapping was confirmed, or None."""
    imports = (
        Import.select()
        .where(
            Import.account == account_id,
            Import.resource == resource,
            Import.phase.is_null() | (Import.phase != MAPPING),
        )
        .order_by(Import.created_at.desc(), Import.id.desc())
        .limit(_MAX_SEARCHED_IMPORTS)
    )
    return next((job for job in imports if [column["name"] for column in job.columns] == column_names), None)


def _create(account_id: int, upload: Upload, file_preview: FilePreview, actor: str, state: dict[str, Any]) -> Import:
    now = clock.now_ms()
    limits.require_import(account_id, count_running(account_id))
    job = Import.create(
        account=account_id, resource=upload.resource, filename=upload.filename, bytes=upload.bytes,
        format=file_preview.format, product=file_preview.product, columns=_describe_columns(upload, file_preview),
        options=msgspec.to_builtins(_resolve_options(account_id, upload.options, bool(state["dry_run"]))), actor=actor,
        created_at=now, updated_at=now, **state,
    )  # fmt: skip
    import_directory(job.id).mkdir(mode=0o700, exist_ok=True)
    Path(upload.path).replace(import_directory(job.id) / "upload")
    data_dir.sync_to_disk(import_directory(job.id))
    data_dir.sync_to_disk(import_directory())
    return job


def count_running(account_id: int) -> int:
    """Return how many imports of an account wait or are in progress, including dry runs and undos."""
    sql = "SELECT count(*) FROM import WHERE account_id = ? AND status NOT IN ('complete', 'failed', 'cancelled')"
    return int(scalar(sql, (account_id,)))


def _resolve_options(account_id: int, options: ImportOptions, dry_run: bool) -> ImportOptions:
    """Return the options with the ids of `list_names` in `list_ids`, and the default country set; raises Invalid.

    Missing lists are created, except in a dry run.
    """
    ids = list(options.list_ids)
    for name in options.list_names:
        existing = fetch_one(
            "SELECT id FROM contact_list WHERE account_id = ? AND name_key = ?", (account_id, normalize_name(name))
        )
        if existing or not dry_run:
            ids.append(int(existing[0]) if existing else lists.create(account_id, lists.ListCreate(name)).id)
    country = options.default_country
    if country is UNSET:
        country = accounts.get(account_id).country_code
    resolved = msgspec.structs.replace(options, list_ids=list(dict.fromkeys(ids)), default_country=country)
    _check_lists(account_id, resolved)
    return resolved


def _describe_columns(upload: Upload, file_preview: FilePreview) -> list[dict[str, Any]]:
    targets = file_reader.assign_targets(file_preview, upload.resource, upload.options.map)
    described: list[dict[str, Any]] = [
        {"name": name, "target": target, "samples": _list_samples(file_preview, index)}
        for index, (name, target) in enumerate(zip(file_preview.names, targets, strict=True))
    ]
    for index, column in enumerate(described):
        if column["target"] == "name":
            column["full_names"] = detection.choose_examples(_sample(row, index) for row in file_preview.rows)
    return described


def list_data_labels(account_id: int) -> dict[str, str]:
    """Return column names by data key, from the account's last imports that filled this custom data."""
    labels: dict[str, str] = {}
    query = Import.select(Import.columns).where(
        Import.account == account_id, Import.resource == "contacts", Import.status == "complete", ~Import.dry_run
    )
    for job in query.order_by(Import.id.desc()).limit(_MAX_LABELLED_IMPORTS):
        for column in job.columns:
            target = column.get("target") or ""
            if target.startswith("data."):
                labels.setdefault(target.removeprefix("data."), column["name"])
    return labels


def _list_samples(file_preview: FilePreview, index: int) -> list[str]:
    """Return the values of a column in the sample rows; if all are empty, the first other value in the preview."""
    samples = [_sample(row, index) for row in file_preview.samples]
    if any(sample.strip() for sample in samples):
        return samples
    return next(([value] for row in file_preview.rows if (value := _sample(row, index)).strip()), samples)


def _sample(row: list[str], index: int) -> str:
    return row[index][:100] if index < len(row) else ""


def _check_lists(account_id: int, options: ImportOptions) -> None:
    faults = Faults()
    if options.default_country and options.default_country not in addresses.phone_countries():
        faults.add("options.default_country", gettext("is not included in the list"))
    list_errors = lists.find_list_errors(account_id, options.list_ids)
    faults.merge({f"options.{name}": messages for name, messages in list_errors.items()})
    for list_id in options.list_ids:
        if fetch_one("SELECT 1 FROM contact_list WHERE id = ? AND segment_id IS NOT NULL", (list_id,)):
            faults.add("options.list_ids", gettext("a list that mirrors a segment takes no members by name"))
    faults.check()


def preview_again(account_id: int, import_id: int, options: ImportOptions) -> tuple[Upload, FilePreview]:
    """Return the stored file of a finished dry run as an upload with new options, and its preview.

    Raises NotFound or Invalid.
    """
    job = _get_dry_run(account_id, import_id)
    resource: Any = job.resource  # The type of the column is str, not the Literal.
    upload = Upload(str(import_directory(import_id) / "upload"), job.filename, job.bytes, resource, options)
    return upload, preview(upload)


def apply(account_id: int, import_id: int, upload: Upload, file_preview: FilePreview, actor: str) -> Import:
    """Start the import of the file of a finished dry run and return it; the outcomes of the dry run are discarded.

    Raises NotFound or Invalid.
    """
    return _restart(account_id, import_id, upload, file_preview, actor, dry_run=False)


def check(account_id: int, import_id: int, upload: Upload, file_preview: FilePreview, actor: str) -> Import:
    """Restart a finished dry run with new options; its outcomes are discarded. Raises NotFound or Invalid."""
    return _restart(account_id, import_id, upload, file_preview, actor, dry_run=True)


def _restart(
    account_id: int, import_id: int, upload: Upload, file_preview: FilePreview, actor: str, *, dry_run: bool
) -> Import:
    require_write_transaction()
    job = _get_dry_run(account_id, import_id)
    job.options = msgspec.to_builtins(_resolve_options(account_id, upload.options, dry_run))
    job.columns, job.actor = _describe_columns(upload, file_preview), actor
    job.dry_run, job.status, job.phase, job.cursor = dry_run, "pending", None, []
    job.error = job.cancel_asked_at = job.completed_at = job.undo_until = None
    job.total = job.processed = job.created = job.updated = job.skipped = job.failed = job.warnings = 0
    job.arriving, job.left_in_place = {}, {}
    job.updated_at = clock.now_ms()
    job.save()
    after_commit(lambda: signals.wake("imports"))
    return job


def _get_dry_run(account_id: int, import_id: int) -> Import:
    job = get(account_id, import_id)
    if not job.dry_run or job.status in OPEN_STATUSES:
        raise _refusal(job, "apply")
    if not has_file(import_id):
        raise Invalid({"base": [gettext("the file is no longer stored; upload it again")]})
    return job


def has_file(import_id: int) -> bool:
    """Return whether the uploaded file of an import still exists."""
    return (import_directory(import_id) / "upload").exists()


def discard(account_id: int, import_id: int) -> Import:
    """Delete a dry run with its files, and return it; raises NotFound, or Invalid if it is not a finished dry run."""
    require_write_transaction()
    job = get(account_id, import_id)
    if not job.dry_run or job.status in OPEN_STATUSES:
        raise _refusal(job, "discard")
    job.delete_instance(recursive=False)
    after_commit(lambda: shutil.rmtree(import_directory(import_id), ignore_errors=True))
    return job


def get(account_id: int, import_id: int) -> Import:
    """Return an import; raises NotFound."""
    job = Import.get_or_none(Import.account == account_id, Import.id == import_id)
    if job is None:
        raise NotFound
    return job


def fetch_page(account_id: int, query: ImportQuery) -> Page:
    """Return a page of the imports that match the query, newest first."""
    query_set = Import.select().where(Import.account == account_id)
    for name in ("resource", "status"):
        value = getattr(query, name)
        if value is not UNSET:
            query_set = query_set.where(getattr(Import, name) == value)
    return paginate(query_set.order_by(Import.created_at.desc(), Import.id.desc()), query.page, query.size())


def cancel(account_id: int, import_id: int) -> Import:
    """Cancel an import: at once if it is pending, else before its next chunk. Applied chunks are not undone.

    Raises NotFound, or Invalid if the import is finished or is being undone.
    """
    require_write_transaction()
    job = get(account_id, import_id)
    if job.status not in OPEN_STATUSES or job.phase == "undoing":
        raise _refusal(job, "cancel")
    now = clock.now_ms()
    job.cancel_asked_at = job.updated_at = now
    if job.status == "pending":
        job.status, job.completed_at = "cancelled", now
    job.save()
    return job


def undo(account_id: int, import_id: int) -> Import:
    """Start the undo of an import and return the import.

    Raises NotFound. Raises Invalid if the import is running, has failed, was a dry run, is being or was undone, or
    ended more than 24 hours ago.
    """
    require_write_transaction()
    job = get(account_id, import_id)
    is_late = job.undo_until is None or job.undo_until < clock.now_ms()
    if job.status not in ("complete", "cancelled") or job.dry_run or job.phase is not None or is_late:
        raise _refusal(job, "undo")
    job.phase, job.updated_at = "undoing", clock.now_ms()
    job.save()
    after_commit(lambda: signals.wake("imports"))
    return job


def _refusal(job: Import, action: str) -> Invalid:
    is_open = job.status in OPEN_STATUSES and job.phase != "undoing"
    reason = ""
    if action == "undo" and job.dry_run:
        reason = gettext("A dry run writes nothing.")
    elif job.phase in ("undoing", "undone"):
        reason = gettext("It is being undone.") if job.phase == "undoing" else gettext("It was undone.")
    elif action == "undo" and job.status not in OPEN_STATUSES and job.undo_until is not None:
        reason = gettext("It ended more than 24 hours ago.")
    state = CurrentState(job.status, ["cancelled"] if is_open else [], ["cancel"] if is_open else [])
    return refuse_transition(state, action, ACTIONS[action], reason)


def is_due() -> bool:
    """Return whether any import is pending, in progress or being undone."""
    return bool(
        rows("SELECT 1 FROM import WHERE status IN ('pending', 'processing') LIMIT 1")
        or rows("SELECT 1 FROM import WHERE phase = 'undoing' LIMIT 1")
    )


def get_options(job: Import) -> ImportOptions:
    """Return the options of an import as a Struct."""
    return msgspec.convert(job.options, ImportOptions)
