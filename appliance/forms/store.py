"""Create, read, update and delete sign-up forms, and limit the rate of anonymous clients."""

import re
import threading
from collections import OrderedDict, deque
from typing import Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from appliance.accounts.access import PUBLIC_PREFIX
from appliance.audience.lists import MIRROR_MESSAGE
from appliance.core import clock, crypto
from appliance.core.errors import Faults, NotFound, RateLimitExceeded
from appliance.core.i18n import gettext
from appliance.core.validation import HttpUrl, Id, Long, Name, PageQuery, Short, default, sent_fields
from appliance.sending.messages import links
from appliance.settings import config
from appliance.storage.database import Page, paginate, rows
from appliance.storage.models import Form
from appliance.storage.transactions import require_write_transaction

CONTACT_FIELDS = ("email", "phone", "first_name", "last_name", "language")
_DATA_KEY = re.compile(r"(?:data\.)?([A-Za-z][A-Za-z0-9_]{0,63})")
_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ORIGIN = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_DEFAULT_PORT = re.compile(r"^(http://.*):80$|^(https://.*):443$")
# Keys of `data` that a form cannot have as fields, because contacts store or parse them in a special way.
_RESERVED_KEYS = ("tags", "enrichment", "website", "data", *CONTACT_FIELDS)


class FormField(Struct):
    """A field of a form: one of `CONTACT_FIELDS`, or a key of the custom data."""

    name: Annotated[
        str,
        Meta(max_length=80),
        Meta(description="`email`, `phone`, `first_name`, `last_name`, `language`, or a key of `data`"),
    ]
    label: (
        Annotated[str, Meta(max_length=255), Meta(description="label of the field on the form's own page")] | None
    ) = None
    required: Annotated[bool, Meta(description="whether the field is required")] = False


Fields = Annotated[
    list[str | FormField],
    Meta(max_length=20),
    Meta(
        description="fields of the form: `email`, `phone`, `first_name`, `last_name`, `language` or keys of `data`, "
        "each as a name or an object"
    ),
]
Origins = Annotated[
    list[Annotated[str, Meta(max_length=255)]],
    Meta(max_length=50),
    Meta(
        description="origins of the sites that may submit the form and read the response, such as `https://example.org`"
    ),
]
Lists = Annotated[list[Id], Meta(max_length=500), Meta(description="ids of the lists that contacts join")]
DoubleOptIn = Annotated[bool, Meta(description="whether contacts confirm their address through a link in an email")]
RedirectUrl = Annotated[
    HttpUrl, Meta(description="URL to which the browser is redirected after submission; null for the built-in page")
]
ConsentText = Annotated[Long, Meta(description="consent text, stored as evidence")]


class FormWrite(Struct):
    """A new form."""

    name: Name
    list_ids: Lists | None | UnsetType = UNSET
    origins: Origins | None | UnsetType = UNSET
    fields: Annotated[Fields, default(["email"])] | None | UnsetType = UNSET
    double_opt_in: Annotated[DoubleOptIn, default(True)] | None | UnsetType = UNSET
    redirect_url: RedirectUrl | None | UnsetType = UNSET
    consent_text: ConsentText | None | UnsetType = UNSET


class FormPatch(Struct):
    """A change of a form: an omitted field is unchanged, and null resets a field to its default."""

    name: Name | UnsetType = UNSET
    list_ids: Lists | None | UnsetType = UNSET
    origins: Origins | None | UnsetType = UNSET
    fields: Fields | None | UnsetType = UNSET
    double_opt_in: DoubleOptIn | None | UnsetType = UNSET
    redirect_url: RedirectUrl | None | UnsetType = UNSET
    consent_text: ConsentText | None | UnsetType = UNSET


class FormQuery(PageQuery):
    """Filters of the form list."""

    search: Annotated[Short, Meta(description="search words for the name")] | UnsetType = UNSET


class Field(NamedTuple):
    """A parsed field of a form; `key` is the key of the custom data, or None for an address or a name."""

    name: str
    key: str | None
    label: str | None
    required: bool


def list_forms(account_id: int, query: FormQuery) -> Page:
    """Return a page of forms, newest first; if `query.search` is given, only forms whose name contains it."""
    forms = Form.select().where(Form.account == account_id)
    if isinstance(query.search, str) and query.search.strip():
        forms = forms.where(Form.name.contains(query.search.strip()))
    page = paginate(forms.order_by(Form.created_at.desc(), Form.id.desc()), query.page, query.size())
    return page._replace(rows=[_load_details(row) for row in page.rows])


def get(account_id: int, form_id: int) -> Form:
    """Return a form with its URL; raises NotFound."""
    form = Form.get_or_none(Form.account == account_id, Form.id == form_id)
    if form is None:
        raise NotFound
    return _load_details(form)


def find_by_key(public_key: str) -> Form:
    """Return the form with a public key, of any account; raises NotFound."""
    form = Form.get_or_none(Form.public_key == public_key)
    if form is None:
        raise NotFound
    return _load_details(form)


def _load_details(form: Form) -> Form:
    """Remove deleted lists from `form.list_ids`, and set `form.url` to the URL of its hosted page."""
    list_ids = {row[0] for row in rows("SELECT id FROM contact_list WHERE account_id = ?", (form.account_id,))}
    form.list_ids = [list_id for list_id in form.list_ids if list_id in list_ids]
    form.url = f"{config.base_url(config.current())}/f/{form.public_key}"
    return form


def create(account_id: int, request: FormWrite) -> Form:
    """Create a form with a new public key, and return it; raises Invalid with all errors."""
    require_write_transaction()
    values = _parse_request(account_id, request)
    now = clock.now_ms()
    form = Form.create(
        account=account_id, public_key=PUBLIC_PREFIX + crypto.random_base62(36), created_at=now, updated_at=now,
        **{"fields": ["email"], **values},
    )  # fmt: skip
    return get(account_id, form.id)


def update(account_id: int, form_id: int, request: FormPatch) -> Form:
    """Update a form and return it; raises NotFound, or Invalid with all errors."""
    require_write_transaction()
    form = Form.get_or_none(Form.account == account_id, Form.id == form_id)
    if form is None:
        raise NotFound
    for name, value in _parse_request(account_id, request).items():
        setattr(form, name, value)
    form.updated_at = clock.now_ms()
    form.save()
    return get(account_id, form_id)


def delete(account_id: int, form_id: int) -> Form:
    """Delete a form and return its last state. Contacts who signed up with it stay. Raises NotFound."""
    require_write_transaction()
    form = get(account_id, form_id)
    Form.delete().where(Form.id == form_id).execute()
    return form


def list_fields(form: Form) -> list[Field]:
    """Return the fields of a form. Without an email or phone field, a required `email` field comes first."""
    fields = [_parse_field(field) for field in form.fields]
    if not any(field.name in ("email", "phone") for field in fields):
        fields.insert(0, Field("email", None, None, True))
    # A single address field is always required; of two address fields, the contact may leave one empty.
    is_single = sum(field.name in ("email", "phone") for field in fields) == 1
    return [
        field._replace(required=True) if is_single and field.name in ("email", "phone") else field for field in fields
    ]


def _parse_field(written: Any) -> Field:
    spec = {"name": written} if isinstance(written, str) else written
    name = spec["name"]
    key = None if name in CONTACT_FIELDS else name.removeprefix("data.")
    return Field(name if key is None else f"data.{key}", key, spec.get("label"), bool(spec.get("required")))


def check_request(account_id: int, request: FormWrite | FormPatch, _: int | None = None) -> None:
    """Raise Invalid with all errors of a request whose types are valid. The third argument, a form id, is ignored."""
    _parse_request(account_id, request)


def _parse_request(account_id: int, request: FormWrite | FormPatch) -> dict[str, Any]:
    """Return the values that a request sets, by column; raises Invalid with all errors."""
    faults = Faults()
    values = sent_fields(request)
    defaults: dict[str, Any] = {"list_ids": [], "origins": [], "fields": ["email"], "double_opt_in": True}
    for name, value in values.items():
        values[name] = defaults.get(name) if value is None else value
    if "name" in values:
        values["name"] = values["name"].strip()
    if "list_ids" in values:
        values["list_ids"] = list(dict.fromkeys(values["list_ids"]))
        segments_by_list = dict(rows("SELECT id, segment_id FROM contact_list WHERE account_id = ?", (account_id,)))
        if not set(values["list_ids"]) <= set(segments_by_list):
            faults.add("list_ids", gettext("must exist"))
        elif any(segments_by_list[list_id] is not None for list_id in values["list_ids"]):
            faults.add("list_ids", gettext(MIRROR_MESSAGE))
    if "origins" in values:
        values["origins"] = _parse_origins(values["origins"], faults)
    if "fields" in values:
        _check_fields(values["fields"], faults)
        values["fields"] = to_builtins(values["fields"])
    faults.check()
    return values


def _parse_origins(texts: list[str], faults: Faults) -> list[str]:
    """Return origins as browsers send them: lower case, ASCII, without the default port, without repetitions.

    An invalid origin is added to `faults`.
    """
    origins = []
    for index, text in enumerate(texts):
        origin = links.encode_url(text.strip().rstrip("/").lower()) or ""
        match = _ORIGIN.fullmatch(origin)
        if match is None or (match["port"] and not 0 < int(match["port"]) < 65_536):
            faults.add(f"origins[{index}]", gettext("is invalid"))
        origins.append(_DEFAULT_PORT.sub(r"\1\2", origin))
    return list(dict.fromkeys(origins))


def get_redirect_url(form: Form) -> str | None:
    """Return the URL to which a form redirects, encoded for a header, or None if the form has no valid one."""
    return links.encode_url(form.redirect_url) if form.redirect_url else None


def _check_fields(form_fields: list[str | FormField], faults: Faults) -> None:
    seen_keys: set[str] = set()
    for index, field in enumerate(form_fields):
        name = field if isinstance(field, str) else field.name
        if not isinstance(name, str):
            continue  # The error of a missing or invalid name was reported before.
        match = _DATA_KEY.fullmatch(name)
        if match is None:
            faults.add(f"fields[{index}]", gettext("is invalid"))
            continue
        key = name if name in CONTACT_FIELDS else match[1]
        if key in _RESERVED_KEYS and name not in CONTACT_FIELDS:
            faults.add(f"fields[{index}]", gettext("is reserved"))
        if key in seen_keys:
            faults.add(f"fields[{index}]", gettext("has already been taken"))
        seen_keys.add(key)
        if isinstance(field, FormField) and isinstance(field.label, str) and _CONTROL_CHARACTERS.search(field.label):
            faults.add(f"fields[{index}].label", gettext("is invalid"))


# Submissions of anonymous clients are counted in memory: a restart resets the counts, and no client data is stored.

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
# The maximum number of counted keys; the least recently used key is removed first.
_MAX_RATE_KEYS = 50_000

_rate_lock = threading.Lock()
_submission_times: OrderedDict[str, deque[int]] = OrderedDict()


def count_submission(key: str, limit: int, window_ms: int) -> int:
    """Count a submission under a key and return 0.

    If the key already has `limit` submissions in the last `window_ms` milliseconds, do not count, and return the
    seconds to wait.
    """
    now = clock.now_ms()
    with _rate_lock:
        times = _submission_times.setdefault(key, deque())
        _submission_times.move_to_end(key)
        while times and not now - window_ms < times[0] <= now:
            times.popleft()
        if len(times) >= limit:
            return max(1, (times[0] + window_ms - now) // 1000 + 1)
        times.append(now)
        while len(_submission_times) > _MAX_RATE_KEYS:
            _submission_times.popitem(last=False)
    return 0


def check_rate(key: str, limit: int, window_ms: int = MINUTE_MS) -> None:
    """Count a submission under a key; raises RateLimitExceeded with the seconds to wait (see `count_submission`)."""
    wait = count_submission(key, limit, window_ms)
    if wait:
        raise RateLimitExceeded(gettext("Too many attempts."), retry_after=wait)
