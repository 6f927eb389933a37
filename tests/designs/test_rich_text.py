"""Rich text is normalised to one form."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from appliance.content.designs import merge, sanitizer

PIECES = st.sampled_from([
    "<p>", "</p>", "<b>", "</b>", "<i class=x>", "</i>", "words & more",
    "{{ first_name | default: \"a & b\" }}", "<br>",
    '<a href="{{ unsubscribe_url }}">', '<a href="javascript:x">', "</a>", "<script>x</script>",
    "<ul><li>", "</li></ul>",
    "{% if x %}", "{% endif %}", "<span style='color:red;position:fixed'>", "</span>", "<", ">", "{{", "}}", "<p></p>",
])  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [
    ("<p>One <b>two</b> <i>three</i></p>", "<p>One <strong>two</strong> <em>three</em></p>"),
    ('<p>{{ first_name | default: "a & b" }}</p>', '<p>{{ first_name | default: "a & b" }}</p>'),
    ('<p><a href="{{ view_url }}" onclick="x()">See</a></p>', '<p><a href="{{ view_url }}">See</a></p>'),
    ('<p class="x" style="color: red; position: fixed">Red</p>', '<p style="color:red">Red</p>'),
    ("<p>One</p><p><br></p><p>&nbsp;</p>", "<p>One</p>"),
    ("<div><h1>Big</h1></div><img src=x><script>x</script>", "Big"),
    ("<p><strong><em></em></strong>One</p>", "<p>One</p>"),
    ("One & two\n\nthree", "One & two\n\nthree"),
    ("", ""),
])  # fmt: skip
def test_normalize_rich_text(text: str, expected: str) -> None:
    """Tags and styles are normalised and sanitised, and empty paragraphs at the end are removed; merge tags stay."""
    assert sanitizer.normalize_rich_text(text) == expected


@given(st.lists(PIECES, max_size=12).map("".join))
def test_normalizing_is_idempotent(text: str) -> None:
    """Normalising any valid rich text twice gives the same as once, and no scripts."""
    assume(merge.find_error(text, "html") is None)
    normalized = sanitizer.normalize_rich_text(text)
    assert sanitizer.normalize_rich_text(normalized) == normalized
    assert "<script" not in normalized and "javascript:" not in normalized.lower().replace("\n", "")
