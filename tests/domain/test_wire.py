"""Bodies that are encoded once and filled by splicing say, byte for byte decoded, what rendering them would."""

import quopri
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appliance.content.designs import merge
from appliance.content.designs.merge_limits import Context, MergeError
from appliance.sending.delivery import mime
from appliance.sending.messages.shared_content import EncodedBody
from tests.domain.test_merge_pieces import VALUES, templates

WORDS = st.lists(
    st.one_of(
        st.sampled_from([".", "..", "From ", "\n", "\r\n", " ", "\t", "=", "é", "😀", "x" * 74, "x" * 75, "x" * 76]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    ),
    max_size=12,
).map("".join)


def decoded(body: bytes) -> str:
    """Read a quoted-printable body with the standard library; the line end that closes it does not count."""
    assert body.endswith(b"\r\n") and body.isascii()
    assert body.count(b"\r") == body.count(b"\n") == body.count(b"\r\n")
    return quopri.decodestring(body).decode().replace("\r\n", "\n").removesuffix("\n")


def plain(text: str) -> str:
    """Make all line ends of a text one kind, without one at its end."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")


def fits(body: bytes) -> bool:
    """Return whether no line is long, begins with a dot or `From `, or ends in space."""
    lines = body.split(b"\r\n")
    return all(len(one) <= 78 and not one.startswith((b".", b"From ")) and one == one.rstrip() for one in lines)


@given(templates(), VALUES, st.sampled_from(("html", "text")))
def test_a_spliced_body_says_what_is_rendered(source: str, values: dict[str, Any], context: Context) -> None:
    """Whatever stands in templates and values, the decoded body is the rendered part."""
    try:
        compiled = merge.compile_template(source, context)
        expected = compiled.render(values)
    except MergeError:
        return
    body = EncodedBody(compiled)
    for _ in range(2):  # the second time from what was kept
        found = body.fill(values)
        assert decoded(found) == plain(expected)
        assert fits(found)
        assert not body.is_single_spaced or mime.is_single_spaced(found)


@given(WORDS, st.lists(st.tuples(WORDS, WORDS), max_size=4))
@example(".", [(".", "."), ("From me", " ")])
@example("a" * 75, [("", "b" * 75), ("c" * 76, "\n")])
@example("é" * 25, [("=" * 25, " \n")])
def test_pieces_may_stand_beside_any_others(first: str, rest: list[tuple[str, str]]) -> None:
    """Fixed words and values of any kind can be put together, and every line keeps to the rules."""
    source = first.replace("{", "") + "".join(
        f"{{{{ data.v{number} }}}}{words.replace('{', '')}" for number, (_, words) in enumerate(rest)
    )
    values = {"data": {f"v{number}": value for number, (value, _) in enumerate(rest)}}
    compiled = merge.compile_template(source, "text")
    found = EncodedBody(compiled).fill(values)
    assert decoded(found) == plain(compiled.render(values))
    assert fits(found)


def test_a_body_that_only_the_language_can_fill() -> None:
    """Loops are rendered and encoded whole, and limits and faults are those of the template."""
    compiled = merge.compile_template("{% for one in data.list %}[{{ one }}]{% endfor %}", "text")
    assert EncodedBody(compiled).fill({"data": {"list": ["a", "é"]}}) == b"[a][=C3=A9]\r\n"
    with pytest.raises(MergeError):
        EncodedBody(merge.compile_template("{{ first_name }}" * 30, "text")).fill({"first_name": "x" * 60_000})


def test_a_value_is_encoded_once_for_all_its_places() -> None:
    """A name shown in many places, to many people, stays each person's own."""
    compiled = merge.compile_template("{{ first_name }} {{ first_name }} <{{ email }}>", "html")
    body = EncodedBody(compiled)
    for number in range(10_000):
        values = {"first_name": f"N{number % 7}&", "email": f"p{number}@example.org"}
        expected = f"N{number % 7}&amp; N{number % 7}&amp; <p{number}@example.org>"
        assert decoded(body.fill(values)) == expected


def test_a_fragment_ends_where_a_line_ends() -> None:
    """A fragment is whole lines, so that neither a dot nor an escape is ever cut by its neighbour."""
    assert mime.encode_fragment("") == b""
    assert mime.encode_fragment("a\n") == b"a\r\n"
    assert mime.encode_fragment(". é") == b"=2E =C3=A9=\r\n"
