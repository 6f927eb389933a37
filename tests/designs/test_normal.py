"""Rich text is kept in one form."""

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


@pytest.mark.parametrize(("written", "kept"), [
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
def test_its_one_form(written: str, kept: str) -> None:
    """Emphasis by its own names, nothing that runs, no empty end; merge tags and plain text as they were."""
    assert sanitizer.normalize_rich_text(written) == kept


@given(st.lists(PIECES, max_size=12).map("".join))
def test_twice_is_as_once(written: str) -> None:
    """Whatever was written that a design may hold, its form is its own form, and no script is in it."""
    assume(merge.find_error(written, "html") is None)
    once = sanitizer.normalize_rich_text(written)
    assert sanitizer.normalize_rich_text(once) == once
    assert "<script" not in once and "javascript:" not in once.lower().replace("\n", "")
