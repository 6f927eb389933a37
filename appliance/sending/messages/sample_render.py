"""A message as somebody would get it, before it is sent: the same rendering that sends it, with invented values."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from appliance.audience.contacts import store as contacts
from appliance.content import brand as brands
from appliance.content.designs import document as designs
from appliance.content.designs import links as designs_links
from appliance.content.designs import merge, plaintext, render, variables
from appliance.content.designs.merge import MergeError
from appliance.content.designs.readable import readable
from appliance.content.templates import checks, placeholders
from appliance.content.templates.requests import Design
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.fields import Data, Id, Line, Subject, Text
from appliance.sending.messages import compose, links, texts, values
from appliance.sending.messages.compose import Content, Filled
from appliance.sending.messages.texts import Shown, Worded
from appliance.storage.models import Account, Brand, Contact

GMAIL_CLIPS = 102 * 1024
# From here on it is worth knowing: a longer name, a few more links, and it is cut off
GMAIL_NEARLY = 80 * 1024
_FIELDS = ("subject", "preheader", "from_name", "body")
# Of an SMS
_TEXT: dict[str, merge.Context] = {"body": "text"}


class PreviewRequest(Struct):
    """A design and the words around it; whose values to show, and what `data` holds.

    Of an SMS the body is all that is said. It is shown as marketing, with short links and how to opt out, unless it is
    `transactional`.
    """

    document: Design
    subject: Subject | None | UnsetType = UNSET
    preheader: Line | None | UnsetType = UNSET
    from_name: Line | None | UnsetType = UNSET
    body: Text | None | UnsetType = UNSET
    contact_id: Id | None | UnsetType = UNSET
    data: Data | None | UnsetType = UNSET
    channel: Literal["email", "sms"] = "email"
    transactional: bool = False


class PreviewWarning(Struct):
    """Something worth a second look: a code, its words, and the field that it is about."""

    code: str
    message: str
    field: str


class Preview(Struct):
    """A message as one person would get it; `bytes` is the size of its HTML, `sms` what its text takes as an SMS."""

    html: str
    text: str
    warnings: list[PreviewWarning]
    bytes: int
    sms: Shown | None = None


def preview(account_id: int, request: PreviewRequest) -> Preview:
    """Render a design; raises Invalid for a contact that is not there, and for what cannot be rendered.

    What a document may not hold, and can still be shown without, is a warning.
    """
    contact, noted = _look_over(account_id, request)
    if request.channel == "sms":
        return _of_text(account_id, request, contact)
    said: dict[str, Any] = {name: getattr(request, name) or None for name in _FIELDS}
    said["design"] = request.document
    content, filled = _rendered(account_id, said, contact, request.data if isinstance(request.data, dict) else {})
    warnings = [PreviewWarning("section", words[0], path) for path, words in noted.fields.items() if "show_if" in path]
    warnings += _warnings(content, filled) + _placeholders(said)
    return Preview(filled.html, filled.text, warnings, len(filled.html.encode()))


def check(account_id: int, request: PreviewRequest, _: int | None = None) -> None:
    """Raise Invalid with all that keeps something from being shown, as far as it is known."""
    _look_over(account_id, request)


def _look_over(account_id: int, request: PreviewRequest) -> tuple[Contact | None, Faults]:
    """Return whose values are shown, and what is noted of a design that can be shown all the same; raises Invalid."""
    faults, noted = Faults(), Faults()
    contact = _contact(account_id, request.contact_id, faults)
    is_text = request.channel == "sms"
    for name, context in (_TEXT if is_text else variables.FIELDS).items():
        if found := merge.fault(getattr(request, name) or None, context):
            faults.add(name, found)
    if not is_text and isinstance(request.document, dict):
        checks.check_design(account_id, request.document, "document.", noted)
    faults.merge({path: words for path, words in noted.fields.items() if not _can_be_shown(path, words)})
    faults.check()
    return contact, noted


def _of_text(account_id: int, request: PreviewRequest, contact: Contact | None) -> Preview:
    """Render an SMS; raises Invalid for what cannot be rendered. That it is too long is shown."""
    body = request.body if isinstance(request.body, str) else ""
    data = request.data if isinstance(request.data, dict) else {}
    try:
        worded = text(account_id, body, _samples({"body": body}, contact, data, "sms"), not request.transactional)
    except MergeError as error:
        raise Invalid({"body": [error.words()]}) from None
    shown = texts.shown(worded)
    warnings = [PreviewWarning("sms_problem", shown.problem, "body")] if shown.problem else []
    if shown.forcing is not None:
        words = f"{shown.forcing.name} is not in GSM-7: a part holds 70 characters instead of 160"
        warnings.append(PreviewWarning("sms_ucs2", words, "body"))
    for name in merge.unknown(merge.compile_template(body, "text").variables):
        warnings.append(PreviewWarning("unknown_merge_tag", f"{name} is known to nobody and stays empty", "body"))
    return Preview("", worded.body, warnings, 0, shown)


def text(
    account_id: int, body: str | None, said: dict[str, Any], marketing: bool, tracked: bool = True, name: str = ""
) -> Worded:
    """Fill an SMS with somebody's values as it would leave, its links as long as they would be; raises MergeError."""
    account = Account.get_by_id(account_id)
    filled_in = {
        **said, **values.of_account(account, brands.get(account_id)), "campaign": {"name": name},
        **values.of_message(0), **texts.tokens(),
    }  # fmt: skip
    addresses = [link.href for link in texts.links(body)] if marketing and tracked else None
    return texts.fill(texts.compiled(body, addresses), filled_in, account.sms_opt_out_hint if marketing else None)


def of_fields(account_id: int, said: dict[str, Any], contact: Contact | None = None, marked: bool = False) -> Filled:
    """Render the fields of a template, of now or of a revision, marked for a canvas; raises Invalid if it cannot be."""
    return _rendered(account_id, said, contact, {}, marked)[1]


class Inbox(NamedTuple):
    """How an inbox lists an email, and how many characters of subject and preview text its recipient gets."""

    from_name: str
    subject: str
    preview_text: str
    lengths: dict[str, int]


def inbox(account_id: int, said: Mapping[str, Any]) -> Inbox:
    """Return how an inbox lists the fields of a template, with invented values; what cannot be rendered is readable."""
    account = Account.get_by_id(account_id)
    default = account.email_from_name or account.name
    try:
        filled = of_fields(account_id, dict(said))
        ours = values.of_account(account, brands.get(account_id))
        lengths = compose.lengths(said, {**_samples(dict(said), None, {}), **ours, **_links(said)})
    except (Invalid, MergeError):
        subject, preview_text = readable(said.get("subject") or ""), readable(said.get("preheader") or "")
        lengths = {"subject": len(subject), "preheader": len(preview_text)}
        return Inbox(readable(said.get("from_name") or "") or default, subject, preview_text, lengths)
    return Inbox(filled.from_name or default, filled.subject, plaintext.inbox_line(filled.html), lengths)


def weigh(account_id: int, said: dict[str, Any], is_tracked: bool) -> int:
    """Return how many bytes of HTML somebody gets of the fields of a template, links led through us if they are
    counted; raises MergeError."""
    account, brand = Account.get_by_id(account_id), brands.get(account_id)
    content = compose.compile_source(compose.source_of(said, brands.look(brand), account.locale, marketing=True))
    shown = values.shown(account_id, None, content.conditions)
    filled_in = {
        **_samples(said, None, {}), **values.of_account(account, brand), **values.of_message(0), **shown,
        "campaign": {"name": said.get("name") or ""}, designs_links.ROOT: links.counting(0),
    }  # fmt: skip
    if is_tracked:
        content = compose.tracked_all(content)
    return len(compose.fill(content, filled_in).html.encode())


def sample(account_id: int, said: dict[str, Any], changed: brands.BrandWrite) -> str:
    """Render the fields of a template as HTML in the brand with these changes, of which nothing is kept.

    What could not be kept is left out, so that a sample is shown while somebody types; raises Invalid if the fields
    themselves cannot be rendered.
    """
    brand = brands.tried(account_id, changed)
    return _rendered(account_id, said, None, {}, brand=brand)[1].html


def advice(account_id: int, said: dict[str, Any]) -> list[PreviewWarning]:
    """Return what is worth a second look in the fields of a template; that it cannot be rendered is the only one."""
    try:
        return _warnings(*_rendered(account_id, said, None, {})) + _placeholders(said)
    except Invalid as refused:
        return [PreviewWarning("render", words[0], field) for field, words in refused.fields.items()]


def unfinished(account_id: int, said: Mapping[str, Any]) -> list[PreviewWarning]:
    """Return what the author of an email left unfinished: placeholders, and what its sections lack.

    Fields are those of a template: `design.sections[2]`, `preheader`, `body`.
    """
    found = [PreviewWarning(*one) for one in placeholders.find(said)]
    if designs.sections(said.get("design")):
        account = Account.get_by_id(account_id)
        rendered = render.render(said["design"], brands.look(brands.get(account_id)), account.locale)
        found += [
            PreviewWarning(one.code, one.message, f"design.{one.path}")
            for one in rendered.advice
            if one.code in placeholders.UNFINISHED
        ]
    return found


def _placeholders(said: Mapping[str, Any]) -> list[PreviewWarning]:
    """Return the placeholders of a document that is previewed, by the field names of its request."""
    found = placeholders.find(said)
    return [PreviewWarning(code, words, path.replace("design.", "document.", 1)) for code, words, path in found]


def _rendered(
    account_id: int,
    said: dict[str, Any],
    contact: Contact | None,
    data: dict[str, Any],
    marked: bool = False,
    brand: Brand | None = None,
) -> tuple[Content, Filled]:
    account = Account.get_by_id(account_id)
    brand = brand or brands.get(account_id)
    source = compose.source_of(said, brands.look(brand), account.locale)
    if not said["body"]:
        # Without sections too it is a mail in the brand's colours, with nothing in it yet
        source = source._replace(design=designs.canonical(said["design"] or {}), marked=marked)
    filled_in = {
        **_samples(said, contact, data), **values.of_account(account, brand), **_links(said),
    }  # fmt: skip
    try:
        content = compose.compile_source(source)
        shown = values.shown(account_id, contact.id if contact is not None else None, content.conditions)
        return content, compose.fill(content, filled_in | shown)
    except MergeError as error:
        raise Invalid({"document": [error.words()]}) from None


def _links(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a message brings itself, its links leading nowhere."""
    name = said.get("name") or ""
    return {"campaign": {"name": name}, "unsubscribe_url": "#", "preferences_url": "#", "view_url": "#"}


def _contact(account_id: int, contact_id: Any, faults: Faults) -> Contact | None:
    if not isinstance(contact_id, int):
        return None
    try:
        return contacts.get(account_id, contact_id)
    except NotFound:
        faults.add("contact_id", "must exist")
        return None


def _can_be_shown(path: str, words: list[str]) -> bool:
    """Return whether a design can be rendered around a fault: a value that is left out, which its rendering tells."""
    return "show_if" in path or (words == ["is invalid"] and (".props." in path or ".styles." in path))


def _samples(
    said: dict[str, Any], contact: Contact | None, data: dict[str, Any], channel: str = "email"
) -> dict[str, Any]:
    """Return the values of a contact, or invented ones for every variable; what `data` brings is as it was brought."""
    found: dict[str, Any] = {"contact": {"data": {}}, "data": {}, "event": {}}
    for name, told in variables.of(said, channel).items():
        here, *way = name.split(".")
        inner: Any = found.setdefault(here, {} if way else told["sample"])
        for one in way[:-1]:
            inner = inner.setdefault(one, {}) if isinstance(inner, dict) else None
        if way and isinstance(inner, dict):
            inner.setdefault(way[-1], told["sample"])
    found |= {"data": {**found["data"], **data}} if isinstance(found["data"], dict) else {"data": data}
    return found | values.of_contact(contact, None) if contact is not None else found


def _warnings(content: Content, filled: Filled) -> list[PreviewWarning]:
    found = [PreviewWarning(one.code, one.message, f"document.{one.path}") for one in content.advice]
    for name in merge.unknown(content.variables()):
        found.append(PreviewWarning("unknown_merge_tag", f"{name} is known to nobody and stays empty", "document"))
    if len(filled.html.encode()) > GMAIL_CLIPS:
        found.append(PreviewWarning("too_long", "over 102 KB: Gmail cuts it off", "document"))
    return found
