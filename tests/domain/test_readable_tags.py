"""Merge tags in lists and titles are shown as their default or, in brackets, their name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs.merge import make_readable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plain", "Plain"),
        ("Hi {{ first_name }}", "Hi [First name]"),
        ("Hi {{ contact.data.pet_name }}, {{ contact.first_name }}", "Hi [Pet name], [First name]"),
        ("Three for {{ contact.first_name | default: 'you' }}!", "Three for you!"),
        ("Birthday{% if contact.first_name %}, {{ contact.first_name }}{% endif %}!", "Birthday, [First name]!"),
        ("{% if contact.vip %}A{% else %}B{% endif %}", "A"),
        # Tags that cannot be replaced by a name, or not be parsed
        ("{% if contact.vip %}A{% else %}B{% endif %} {{ data.sum | money }}", "A [Sum]"),
        ("{{ first_name | bogus }} and {{ last_name", "[First name] and last_name"),
        ("{% if a %}1{% if b %}2{% else %}3{% endif %}4{% elsif c %}5{% endif %}{{ x | bogus }}", "124[X]"),
    ],
)
def test_make_readable(text: str, expected: str) -> None:
    """A tag becomes its default or its name, a condition its first branch; invalid tags keep their words."""
    assert make_readable(text) == expected


@given(st.text(alphabet="{}%| .'abifelsndx_", max_size=60))
def test_make_readable_leaves_no_tag_syntax(text: str) -> None:
    """For any text no opening of a tag is left, and nothing is raised."""
    readable = make_readable(text)
    assert "{{" not in readable and "{%" not in readable
