"""Create, read, update and delete sign-up forms, and limit how often clients submit forms or request emails."""

import re
import threading
from collections import OrderedDict, deque
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from appliance.accounts.access import PUBLIC_PREFIX
from appliance.accounts.public_urls import fetch_base_url
from appliance.audience.lists import MIRROR_MESSAGE
from appliance.core import clock, crypto
from appliance.core.errors import Faults, NotFound, RateLimitExceeded
from appliance.core.i18n import gettext
from appliance.core.validation import HttpUrl, Id, LanguageTag, Line, Long, Name, PageQuery, Short, default, sent_fields
from appliance.forms.fields import MAX_FIELDS, FormField, check_fields
from appliance.sending.messages import links
from appliance.storage.database import Page, fetch_one, paginate, rows
from appliance.storage.models import Form
from appliance.storage.transactions import require_write_transaction

_ORIGIN = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_DEFAULT_PORT = re.compile(r"^(http://.*):80$|^(https://.*):443$")


Fields = Annotated[
    list[str | FormField],
    Meta(max_length=MAX_FIELDS),
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
FormLanguage = Annotated[
    LanguageTag,
    Meta(description="language of the form, of its confirmations, and of new contacts; null for that of the browser"),
]
ConsentText = Annotated[Long, Meta(description="consent text, stored as evidence")]
Title = Annotated[Line, Meta(description="heading of the form; null for its name")]
Intro = Annotated[str, Meta(max_length=2_000), Meta(description="text below the heading")]
ButtonText = Annotated[
    str, Meta(max_length=80, extra={"line": True}), Meta(description="text of the button; null for the built-in text")
]
ThanksTitle = Annotated[Line, Meta(description="heading after submission; null for the built-in heading")]
ThanksText = Annotated[
    str,
    Meta(max_length=2_000),
    Meta(description="text after submission; null for the built-in text. With double opt-in, the request to look "
         "into the inbox follows"),
]  # fmt: skip
Topics = Annotated[
    list[Id], Meta(max_length=50), Meta(description="ids of the public lists that visitors may choose from, in order")
]
TopicsRequired = Annotated[bool, Meta(description="whether visitors must choose at least one of `topic_ids`")]


class FormWrite(Struct):
    """A new form."""

    name: Name
    language: FormLanguage | None | UnsetType = UNSET
    list_ids: Lists | None | UnsetType = UNSET
    origins: Origins | None | UnsetType = UNSET
    fields: Annotated[Fields, default(["email"])] | None | UnsetType = UNSET
    double_opt_in: Annotated[DoubleOptIn, default(True)] | None | UnsetType = UNSET
    redirect_url: RedirectUrl | None | UnsetType = UNSET
    consent_text: ConsentText | None | UnsetType = UNSET
    title: Title | None | UnsetType = UNSET
    intro: Intro | None | UnsetType = UNSET
    button_text: ButtonText | None | UnsetType = UNSET
    thanks_title: ThanksTitle | None | UnsetType = UNSET
    thanks_text: ThanksText | None | UnsetType = UNSET
    topic_ids: Topics | None | UnsetType = UNSET
    topics_required: Annotated[TopicsRequired, default(False)] | None | UnsetType = UNSET


class FormPatch(Struct):
    """A change of a form: an omitted field is unchanged, and null resets a field to its default."""

    name: Name | UnsetType = UNSET
    language: FormLanguage | None | UnsetType = UNSET
    list_ids: Lists | None | UnsetType = UNSET
    origins: Origins | None | UnsetType = UNSET
    fields: Fields | None | UnsetType = UNSET
    double_opt_in: DoubleOptIn | None | UnsetType = UNSET
    redirect_url: RedirectUrl | None | UnsetType = UNSET
    consent_text: ConsentText | None | UnsetType = UNSET
    title: Title | None | UnsetType = UNSET
    intro: Intro | None | UnsetType = UNSET
    button_text: ButtonText | None | UnsetType = UNSET
    thanks_title: ThanksTitle | None | UnsetType = UNSET
    thanks_text: ThanksText | None | UnsetType = UNSET
    topic_ids: Topics | None | UnsetType = UNSET
    topics_required: TopicsRequired | None | UnsetType = UNSET


class FormQuery(PageQuery):
    """Filters of the form list."""

    search: Annotated[Short, Meta(description="text that the name contains")] | UnsetType = UNSET


def list_forms(account_id: int, query: FormQuery) -> Page:
    """Return a page of forms, newest first; if `query.search` is given, only forms whose name contains it."""
    forms = Form.select().where(Form.account == account_id)
    if isinstance(query.search, str) and query.search.strip():
        forms = forms.where(Form.name.contains(query.search.strip()))
    page = paginate(forms.order_by(Form.created_at.desc(), Form.id.desc()), query.page, query.size())
    return page._replace(rows=[_load_details(row) for row in page.rows])


def get(account_id: int, form_id: int) -> Form:
    """Return a form without the lists that were deleted; raises NotFound.

    `url` is set to the URL of its hosted page, and `topics` to the (id, name) of the public lists that visitors choose
    from.
    """
    form = Form.get_or_none(Form.account == account_id, Form.id == form_id)
    if form is None:
        raise NotFound
    return _load_details(form)


def find_by_key(public_key: str) -> Form:
    """Return the form with a public key, of any account, with the attributes of `get`; raises NotFound."""
    form = Form.get_or_none(Form.public_key == public_key)
    if form is None:
        raise NotFound
    return _load_details(form)


def _load_details(form: Form) -> Form:
    """Remove deleted lists from the form, and set `form.topics` and `form.url`, the URL of its hosted page.

    `form.topics` are the (id, name) of the lists that visitors may choose from, the public ones among `topic_ids`.
    """
    list_rows = rows("SELECT id, name, public FROM contact_list WHERE account_id = ?", (form.account_id,))
    names = {row[0]: row[1] for row in list_rows}
    public_ids = {row[0] for row in list_rows if row[2]}
    form.list_ids = [list_id for list_id in form.list_ids if list_id in names]
    form.topic_ids = [list_id for list_id in form.topic_ids if list_id in names]
    form.topics = [(list_id, names[list_id]) for list_id in form.topic_ids if list_id in public_ids]
    form.url = f"{fetch_base_url(form.account_id)}/f/{form.public_key}"
    return form


def build_preview(account_id: int, request: FormWrite) -> Form:
    """Return a form as it would be created, without storing it; raises Invalid with all errors."""
    values: dict[str, Any] = {"fields": ["email"], **_parse_request(account_id, request)}
    return _load_details(Form(account=account_id, public_key=PUBLIC_PREFIX, **values))


def duplicate(account_id: int, form_id: int, name: str) -> Form:
    """Create a copy of a form with a public key of its own and without submissions; raises NotFound."""
    require_write_transaction()
    source = get(account_id, form_id)
    now = clock.now_ms()
    copied = {column: getattr(source, column) for column in _COPIED_COLUMNS}
    form = Form.create(
        account=account_id, name=name[:255], public_key=_new_public_key(), created_at=now, updated_at=now, **copied
    )
    return get(account_id, form.id)


_COPIED_COLUMNS = (
    "language", "list_ids", "origins", "fields", "double_opt_in", "redirect_url", "consent_text", "title", "intro",
    "button_text", "thanks_title", "thanks_text", "topic_ids", "topics_required",
)  # fmt: skip


def count_recent_submissions(account_id: int, form_id: int, days: int) -> int:
    """Return the number of submissions of a form in the last `days` days."""
    count = fetch_one(
        "SELECT count(*) FROM event WHERE account_id = ? AND resource_uid = ? AND created_at > ? "
        "AND event = 'form_submitted'",
        (account_id, f"form:{form_id}", clock.now_ms() - days * clock.DAY_MS),
    )
    return int(count[0]) if count else 0


def _new_public_key() -> str:
    return PUBLIC_PREFIX + crypto.random_base62(36)


def create(account_id: int, request: FormWrite) -> Form:
    """Create a form with a new public key, and return it; raises Invalid with all errors."""
    require_write_transaction()
    values = _parse_request(account_id, request)
    now = clock.now_ms()
    form = Form.create(
        account=account_id, public_key=_new_public_key(), created_at=now, updated_at=now,
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
    """Delete a form and return its last state. Contacts who signed up with it are not deleted. Raises NotFound."""
    require_write_transaction()
    form = get(account_id, form_id)
    Form.delete().where(Form.id == form_id).execute()
    return form


def check_request(account_id: int, request: FormWrite | FormPatch, _: int | None = None) -> None:
    """Raise Invalid with all errors of a request that was parsed already. The third argument, a form id, is ignored."""
    _parse_request(account_id, request)


def _parse_request(account_id: int, request: FormWrite | FormPatch) -> dict[str, Any]:
    """Return the values that a request sets, by column; raises Invalid with all errors."""
    faults = Faults()
    values = sent_fields(request)
    defaults: dict[str, Any] = {
        "list_ids": [], "origins": [], "fields": ["email"], "double_opt_in": True, "topic_ids": [],
        "topics_required": False,
    }  # fmt: skip
    for name, value in values.items():
        values[name] = defaults.get(name) if value is None else value
    if "name" in values:
        values["name"] = values["name"].strip()
    if values.keys() & {"list_ids", "topic_ids"}:
        _check_lists(account_id, values, faults)
    if "origins" in values:
        values["origins"] = _parse_origins(values["origins"], faults)
    if "fields" in values:
        check_fields(values["fields"], faults)
        values["fields"] = to_builtins(values["fields"])
    faults.check()
    return values


def _check_lists(account_id: int, values: dict[str, Any], faults: Faults) -> None:
    """Remove repetitions from the ids of lists in `values`, and add errors for unusable lists to `faults`."""
    lists = {
        row[0]: (row[1], row[2])
        for row in rows("SELECT id, segment_id, public FROM contact_list WHERE account_id = ?", (account_id,))
    }
    for name in ("list_ids", "topic_ids"):
        if name not in values:
            continue
        values[name] = list(dict.fromkeys(values[name]))
        if not set(values[name]) <= set(lists):
            faults.add(name, gettext("must exist"))
        elif any(lists[list_id][0] is not None for list_id in values[name]):
            faults.add(name, gettext(MIRROR_MESSAGE))
        elif name == "topic_ids" and not all(lists[list_id][1] for list_id in values[name]):
            faults.add(name, gettext("must be public lists, because visitors see their names"))


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
    """Return the URL to which a form redirects, encoded for a header, or None if the form has no valid redirect URL."""
    return links.encode_url(form.redirect_url) if form.redirect_url else None


# Attempts are counted in memory: a restart resets the counts, and no client data is stored.

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
# The maximum number of counted keys; the least recently used key is removed first.
_MAX_RATE_KEYS = 50_000

_rate_lock = threading.Lock()
_attempt_times: OrderedDict[str, deque[int]] = OrderedDict()


def count_attempt(key: str, limit: int, window_ms: int) -> int:
    """Count an attempt, such as a submission or a requested email, under a key and return 0.

    If the key already has `limit` attempts in the last `window_ms` milliseconds, the attempt is not counted, and the
    seconds to wait are returned.
    """
    now = clock.now_ms()
    with _rate_lock:
        times = _attempt_times.setdefault(key, deque())
        _attempt_times.move_to_end(key)
        while times and not now - window_ms < times[0] <= now:
            times.popleft()
        if len(times) >= limit:
            return max(1, (times[0] + window_ms - now) // 1000 + 1)
        times.append(now)
        while len(_attempt_times) > _MAX_RATE_KEYS:
            _attempt_times.popitem(last=False)
    return 0


def check_rate(key: str, limit: int, window_ms: int = MINUTE_MS) -> None:
    """Count an attempt under a key. Raises RateLimitExceeded with the seconds to wait if the limit is reached."""
    wait = count_attempt(key, limit, window_ms)
    if wait:
        raise RateLimitExceeded(gettext("Too many attempts."), retry_after=wait)
