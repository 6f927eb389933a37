"""Sign-up forms: made, changed, listed, found by their public key."""

import re
import threading
from collections import OrderedDict, deque
from typing import Annotated, Any, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from appliance.accounts.keys import PUBLIC
from appliance.audience.contacts.lists import VIEW
from appliance.core import clock, tokens
from appliance.core.errors import Faults, NotFound, TooMany
from appliance.core.fields import HttpUrl, Id, Long, Name, PageQuery, Short, default, given
from appliance.core.pagination import Page, paginate
from appliance.sending.messages import link_targets
from appliance.settings import config
from appliance.storage.models import Form
from appliance.storage.open import rows
from appliance.storage.work import writing

PLAIN = ("email", "phone", "first_name", "last_name")
_KEY = re.compile(r"(?:data\.)?([A-Za-z][A-Za-z0-9_]{0,63})")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ORIGIN = re.compile(r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
_USUAL_PORT = re.compile(r"^(http://.*):80$|^(https://.*):443$")
# Kept of people by other names, or read as more than text
_RESERVED = ("tags", "enrichment", "website", "data", "email", "phone", "first_name", "last_name")


class FormField(Struct):
    """A field of a form: `email`, `phone`, `first_name`, `last_name`, or a key of `data`."""

    name: Annotated[str, Meta(max_length=80)]
    label: Annotated[str, Meta(max_length=255)] | None = None
    required: bool = False


Fields = Annotated[list[str | FormField], Meta(max_length=20)]
Origins = Annotated[list[Annotated[str, Meta(max_length=255)]], Meta(max_length=50)]
Lists = Annotated[list[Id], Meta(max_length=500)]


class FormWrite(Struct):
    """A new form; a field may be written as its name alone."""

    name: Name
    list_ids: Lists | None | UnsetType = UNSET
    origins: Origins | None | UnsetType = UNSET
    fields: Annotated[Fields, default(["email"])] | None | UnsetType = UNSET
    double_opt_in: Annotated[bool, default(True)] | None | UnsetType = UNSET
    redirect_url: HttpUrl | None | UnsetType = UNSET
    consent_text: Long | None | UnsetType = UNSET


class FormPatch(Struct):
    """A change of a form; absent keeps, null clears."""

    name: Name | UnsetType = UNSET
    list_ids: Lists | None | UnsetType = UNSET
    origins: Origins | None | UnsetType = UNSET
    fields: Fields | None | UnsetType = UNSET
    double_opt_in: bool | None | UnsetType = UNSET
    redirect_url: HttpUrl | None | UnsetType = UNSET
    consent_text: Long | None | UnsetType = UNSET


class FormQuery(PageQuery):
    """How forms are asked for."""

    search: Short | UnsetType = UNSET


class Field(NamedTuple):
    """A field as pages and submissions read it; `key` is that of `data`, None for the others."""

    name: str
    key: str | None
    label: str | None
    required: bool


def page(account_id: int, query: FormQuery) -> Page:
    """List forms, newest first."""
    found = Form.select().where(Form.account == account_id)
    if isinstance(query.search, str) and query.search.strip():
        found = found.where(Form.name.contains(query.search.strip()))
    result = paginate(found.order_by(Form.created_at.desc(), Form.id.desc()), query.page, query.size())
    return result._replace(rows=[_dress(row) for row in result.rows])


def get(account_id: int, form_id: int) -> Form:
    """Return a form; raises NotFound."""
    found = Form.get_or_none(Form.account == account_id, Form.id == form_id)
    if found is None:
        raise NotFound
    return _dress(found)


def by_key(public_key: str) -> Form:
    """Return the form of a public key; raises NotFound."""
    found = Form.get_or_none(Form.public_key == public_key)
    if found is None:
        raise NotFound
    return _dress(found)


def _dress(form: Form) -> Form:
    """Leave out lists that are gone, and say where the form's own page is."""
    have = {row[0] for row in rows("SELECT id FROM contact_list WHERE account_id = ?", (form.account_id,))}
    form.list_ids = [one for one in form.list_ids if one in have]
    form.url = f"{config.base_url(config.current())}/f/{form.public_key}"
    return form


def create(account_id: int, request: FormWrite) -> Form:
    """Make a form with a key of its own; raises Invalid with all faults."""
    writing()
    values = _checked(account_id, request)
    now = clock.now_ms()
    made = Form.create(
        account=account_id, public_key=PUBLIC + tokens.random_base62(36), created_at=now, updated_at=now,
        **{"fields": ["email"], **values},
    )  # fmt: skip
    return get(account_id, made.id)


def update(account_id: int, form_id: int, request: FormPatch) -> Form:
    """Change a form; raises NotFound, or Invalid with all faults."""
    writing()
    form = Form.get_or_none(Form.account == account_id, Form.id == form_id)
    if form is None:
        raise NotFound
    for name, value in _checked(account_id, request).items():
        setattr(form, name, value)
    form.updated_at = clock.now_ms()
    form.save()
    return get(account_id, form_id)


def delete(account_id: int, form_id: int) -> Form:
    """Delete a form and answer it as it was; who came through it stays. Raises NotFound."""
    writing()
    found = get(account_id, form_id)
    Form.delete().where(Form.id == form_id).execute()
    return found


def fields_of(form: Form) -> list[Field]:
    """Return what a form asks for; without an address to write to nobody could sign up."""
    found = [_field(one) for one in form.fields]
    if not any(one.name in ("email", "phone") for one in found):
        found.insert(0, Field("email", None, None, True))
    # The only address is needed; of two, one is enough
    single = sum(one.name in ("email", "phone") for one in found) == 1
    return [one._replace(required=True) if single and one.name in ("email", "phone") else one for one in found]


def _field(written: Any) -> Field:
    one = {"name": written} if isinstance(written, str) else written
    name = one["name"]
    key = None if name in PLAIN else name.removeprefix("data.")
    return Field(name if key is None else f"data.{key}", key, one.get("label"), bool(one.get("required")))


def check(account_id: int, request: FormWrite | FormPatch, _: int | None = None) -> None:
    """Raise Invalid with all that is wrong with a form, beyond its types."""
    _checked(account_id, request)


def _checked(account_id: int, request: FormWrite | FormPatch) -> dict[str, Any]:
    """Return the columns that a request sets; raises Invalid with all faults."""
    faults = Faults()
    values = given(request)
    empty: dict[str, Any] = {"list_ids": [], "origins": [], "fields": ["email"], "double_opt_in": True}
    for name, value in values.items():
        values[name] = empty.get(name) if value is None else value
    if "name" in values:
        values["name"] = values["name"].strip()
    if "list_ids" in values:
        values["list_ids"] = list(dict.fromkeys(values["list_ids"]))
        have = dict(rows("SELECT id, segment_id FROM contact_list WHERE account_id = ?", (account_id,)))
        if not set(values["list_ids"]) <= set(have):
            faults.add("list_ids", "must exist")
        elif any(have[one] is not None for one in values["list_ids"]):
            faults.add("list_ids", VIEW)
    if "origins" in values:
        values["origins"] = _origins(values["origins"], faults)
    if "fields" in values:
        _check_fields(values["fields"], faults)
        values["fields"] = to_builtins(values["fields"])
    faults.check()
    return values


def _origins(written: list[str], faults: Faults) -> list[str]:
    """Return origins as browsers tell theirs: in lower case, ASCII, without the port that goes without saying."""
    found = []
    for index, text in enumerate(written):
        origin = link_targets.sendable(text.strip().rstrip("/").lower()) or ""
        match = _ORIGIN.fullmatch(origin)
        if match is None or (match["port"] and not 0 < int(match["port"]) < 65_536):
            faults.add(f"origins[{index}]", "is invalid")
        found.append(_USUAL_PORT.sub(r"\1\2", origin))
    return list(dict.fromkeys(found))


def leads_to(form: Form) -> str | None:
    """Return where a form leads in the end, as it may stand in a header."""
    return link_targets.sendable(form.redirect_url) if form.redirect_url else None


def _check_fields(written: list[str | FormField], faults: Faults) -> None:
    seen: set[str] = set()
    for index, one in enumerate(written):
        name = one if isinstance(one, str) else one.name
        if not isinstance(name, str):
            continue  # absent or wrong, which the reader has told
        found = _KEY.fullmatch(name)
        if found is None:
            faults.add(f"fields[{index}]", "is invalid")
            continue
        key = name if name in PLAIN else found[1]
        if key in _RESERVED and name not in PLAIN:
            faults.add(f"fields[{index}]", "is reserved")
        if key in seen:
            faults.add(f"fields[{index}]", "has already been taken")
        seen.add(key)
        if isinstance(one, FormField) and isinstance(one.label, str) and _CONTROL.search(one.label):
            faults.add(f"fields[{index}].label", "is invalid")


# How often a stranger may do something, counted in memory: a restart forgives, and nothing they sent is kept.

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
# Names remembered at once; the one that was quiet the longest is forgotten first
_MAX_KEYS = 50_000

_lock = threading.Lock()
_seen: OrderedDict[str, deque[int]] = OrderedDict()


def count_submission(name: str, most: int, window_ms: int) -> int:
    """Count one more under a name, unless that were too many: then answer the seconds to wait, else 0."""
    now = clock.now_ms()
    with _lock:
        times = _seen.setdefault(name, deque())
        _seen.move_to_end(name)
        while times and not now - window_ms < times[0] <= now:
            times.popleft()
        if len(times) >= most:
            return max(1, (times[0] + window_ms - now) // 1000 + 1)
        times.append(now)
        while len(_seen) > _MAX_KEYS:
            _seen.popitem(last=False)
    return 0


def check_rate(name: str, most: int, window_ms: int = MINUTE_MS) -> None:
    """Count one more under a name; raises TooMany."""
    wait = count_submission(name, most, window_ms)
    if wait:
        raise TooMany("too many attempts", retry_after=wait)
