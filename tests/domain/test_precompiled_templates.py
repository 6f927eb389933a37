"""Rendering of plain templates from precompiled pieces gives the same output as the template library."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs import merge
from appliance.content.designs.merge_limits import Context, MergeError

PATHS = (
    "first_name",
    "contact.data.city",
    "contact",
    "data.list",
    "data.n",
    "data.yes",
    "gone",
    "contact.first_name.x",
)
FILTERS = ("", " | default: 'no <b>'", " | upcase", " | capitalize | strip", " | escape", " | default: '' | downcase",
           " | url_encode", " | default: \"a & b\" | escape")  # fmt: skip
WORDS = ("<p title='", "'>", '<a href="', '">', "https://x.test/?q=", "mailto:", "?s=", "\r\n", " ", "&amp;", "\r")


@st.composite
def templates(draw: st.DrawFn) -> str:
    """Draw templates of literal text, outputs, and blocks around them."""
    parts: list[str] = []
    for _ in range(draw(st.integers(0, 6))):
        output = f"{{{{ {draw(st.sampled_from(PATHS))}{draw(st.sampled_from(FILTERS))} }}}}"
        literal = draw(st.sampled_from(WORDS))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            parts.append(
                f"{{% if {draw(st.sampled_from(PATHS))} %}}{literal}{output}{{% else %}}{literal}{{% endif %}}"
            )
        elif kind == 1:
            parts.append(f"{{% if data.yes %}}{literal}{{% endif %}}{{%- comment %}}x{{% endcomment -%}}")
        else:
            parts.append(literal + output)
    return "".join(parts)


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False),
                  st.text(st.characters(exclude_categories=["Cs"]), max_size=12))  # fmt: skip
VALUES = st.fixed_dictionaries(
    {"first_name": PLAIN, "contact": st.fixed_dictionaries({"first_name": PLAIN, "data": st.one_of(
        st.dictionaries(st.just("city"), st.one_of(PLAIN, st.lists(PLAIN, max_size=2))), st.none())}),
     "data": st.fixed_dictionaries({"n": PLAIN, "list": st.lists(PLAIN, max_size=3), "yes": PLAIN})}
)  # fmt: skip


@given(templates(), VALUES, st.sampled_from(("html", "text")))
def test_pieces_render_like_the_library(source: str, values: dict[str, Any], context: Context) -> None:
    """For any values, `render` and `render_whole` return the same output or error."""
    try:
        compiled = merge.compile_template(source, context)
    except MergeError:
        return
    assert render_or_error(compiled.render, values) == render_or_error(compiled.render_whole, values)


def render_or_error(render: Any, values: dict[str, Any]) -> str:
    """Return the output of a render function, or its error as text."""
    try:
        return str(render(values))
    except MergeError as error:
        return f"fault: {error.describe()}"


def test_pieces_have_the_same_output_limit() -> None:
    """The limit of the output's size also counts for a template rendered from pieces."""
    compiled = merge.compile_template("{{ first_name }}" * 20, "html")
    assert len(compiled.render({"first_name": "x" * 50_000})) == 1_000_000
    with pytest.raises(MergeError, match="output"):
        compiled.render({"first_name": "x" * 60_000})


@pytest.mark.parametrize("special", ["now", "today", "data.size", "data.list.first", "data.list.last"])
def test_special_names_render_like_the_library(special: str) -> None:
    """`now`, `today` and names such as `size` have the meaning that the template library gives them."""
    compiled = merge.compile_template(f"{{{{ {special} }}}}", "text")
    assert (
        compiled.render({"data": {"list": ["a", "b"]}})[:8] == compiled.render_whole({"data": {"list": ["a", "b"]}})[:8]
    )
