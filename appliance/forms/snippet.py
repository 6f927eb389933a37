"""A form as plain HTML for somebody's own page: it needs no script and looks as that page does."""

from collections.abc import Mapping
from html import escape

from appliance.engagement import words
from appliance.forms import store
from appliance.forms.reading import TRAP
from appliance.forms.store import Field
from appliance.tables import Form

_TYPES = {"email": "email", "phone": "tel"}


def html(form: Form, language: str) -> str:
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
