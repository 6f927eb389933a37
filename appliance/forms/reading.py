"""Reads what somebody typed into a form; only what the form asks for is taken."""

from collections.abc import Mapping
from html import escape
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from appliance.core import addresses, fields
from appliance.core.addresses import Address
from appliance.core.errors import Faults, Invalid
from appliance.core.fields import Line
from appliance.forms import store
from appliance.forms.store import Field
from appliance.storage.models import Account, Form
from appliance.tracking import words

# A field that people do not see; what fills in everything fills in this too
TRAP = "website"
_MAX_CHARACTERS = 1_000


class Names(Struct):
    """The names that every form takes."""

    first_name: Line | None | UnsetType = UNSET
    last_name: Line | None | UnsetType = UNSET


class Submitted(NamedTuple):
    """What somebody typed: the address they sign up with, and what else they say."""

    address: Address
    phone: Address | None  # beside an e-mail address
    names: dict[str, str]
    data: dict[str, Any]


def is_trapped(raw: Mapping[str, Any]) -> bool:
    """Return whether a program filled in the field that nobody sees."""
    return raw.get(TRAP) not in (None, "", UNSET)


def read(form: Form, raw: Mapping[str, Any]) -> Submitted:
    """Read a submission; raises Invalid with all faults, under the names of the fields.

    A phone number may be written as people write it where the account lives.
    """
    faults = Faults()
    asked = store.fields_of(form)
    data = _data(raw, [one for one in asked if one.key is not None], faults)
    names: dict[str, str] = {}
    try:
        said = fields.read(Names, {name: raw[name] for name in ("first_name", "last_name") if name in raw})
        names = {name: value.strip() for name, value in fields.given(said).items() if value and value.strip()}
    except Invalid as refused:
        faults.merge(refused.fields)
    found = {kind: _address(form, kind, raw.get(kind), faults) for kind in ("email", "phone")}
    values: dict[str, Any] = {**found, **names, **{f"data.{key}": value for key, value in data.items()}}
    for one in asked:
        if one.required and values.get(one.name) in (None, "") and one.name not in faults.fields:
            faults.add(one.name, "can't be blank")
    if not any(found.values()) and not set(found) & set(faults.fields):
        faults.add("phone" if not any(one.name == "email" for one in asked) else "email", "can't be blank")
    faults.check()
    address = found["email"] or found["phone"]
    assert address is not None
    return Submitted(address, found["phone"] if found["email"] else None, names, data)


def _address(form: Form, kind: str, text: Any, faults: Faults) -> Address | None:
    if text is None or text == "":
        return None
    if not isinstance(text, str) or len(text) > 300:
        faults.add(kind, "is invalid")
        return None
    try:
        if kind == "phone":
            return addresses.written_phone(text, Account.get_by_id(form.account_id).country_code)
        return addresses.email(text)
    except ValueError:
        faults.add(kind, "is invalid")
        return None


def _data(raw: Mapping[str, Any], asked: list[Field], faults: Faults) -> dict[str, Any]:
    """Return the values of `data`, sent as an object, as `data[key]`, as `data.key` or by their plain name."""
    inner = raw.get("data")
    inner = inner if isinstance(inner, dict) else {}
    found: dict[str, Any] = {}
    for one in asked:
        assert one.key is not None
        places = (inner.get(one.key), raw.get(one.name), raw.get(f"data[{one.key}]"), raw.get(one.key))
        value = next((each for each in places if each not in (None, "")), None)
        if isinstance(value, str):
            value = value.strip()
            if not _is_text(value):
                faults.add(one.name, "is invalid")
            elif len(value) > _MAX_CHARACTERS:
                faults.add(one.name, f"is too long (maximum is {_MAX_CHARACTERS} characters)")
        if isinstance(value, bool | int | float | str) and value != "" and _is_finite(value):
            found[one.key] = value
    return found


def _is_text(value: str) -> bool:
    return "\x00" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, int | float) or -(2**53) <= value <= 2**53


# A form as plain HTML for somebody's own page: it needs no script and looks as that page does.

_TYPES = {"email": "email", "phone": "tel"}


def snippet_html(form: Form, language: str) -> str:
    """Write a form, to be copied."""
    said = words.of(language)
    lines = [f'<form action="{escape(form.url)}" method="post">']
    lines += [f"  <p><label>{escape(_label(one, said))}<br>{_input(one)}</label></p>" for one in store.fields_of(form)]
    # Out of sight, and out of the way of who goes by keyboard or ear
    lines.append(
        f'  <p hidden><label>{escape(said["form_trap"])} <input name="{TRAP}" tabindex="-1" autocomplete="off">'
        "</label></p>"
    )
    if form.consent_text:
        lines.append(f"  <p><small>{escape(form.consent_text)}</small></p>")
    return "\n".join([*lines, f"  <p><button>{escape(said['form_button'])}</button></p>", "</form>"])


def _label(one: Field, said: Mapping[str, str]) -> str:
    return one.label or (said[f"form_{one.name}"] if one.key is None else one.key.replace("_", " ").capitalize())


def _input(one: Field) -> str:
    needed = " required" if one.required else ""
    return f'<input name="{escape(one.name)}" type="{_TYPES.get(one.name, "text")}"{needed}>'
