"""Merge tags in lists and titles: the default, else the name in brackets, never the source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.content.designs.merge import make_readable


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Plain", "Plain"),
        ("Hi {{ first_name }}", "Hi [First name]"),
        ("Hi {{ contact.data.pet_name }}, {{ contact.first_name }}", "Hi [Pet name], [First name]"),
        ("Three for {{ contact.first_name | default: 'you' }}!", "Three for you!"),
        ("Birthday{% if contact.first_name %}, {{ contact.first_name }}{% endif %}!", "Birthday, [First name]!"),
        ("{% if contact.vip %}A{% else %}B{% endif %}", "A"),
        # What cannot be filled with a name, or not be parsed at all
        ("{% if contact.vip %}A{% else %}B{% endif %} {{ data.sum | money }}", "A [Sum]"),
        ("{{ first_name | bogus }} and {{ last_name", "[First name] and last_name"),
        ("{% if a %}1{% if b %}2{% else %}3{% endif %}4{% elsif c %}5{% endif %}{{ x | bogus }}", "124[X]"),
    ],
)
def test_a_tag_is_its_default_or_its_name(text: str, said: str) -> None:
    """Of conditions the first branch is shown; what is broken keeps its words."""
    assert make_readable(text) == said


@given(st.text(alphabet="{}%| .'abifelsndx_", max_size=60))
def test_no_source_of_a_tag_is_ever_left(text: str) -> None:
    """Whatever is typed, no opening of a tag is shown, and nothing is raised."""
    said = make_readable(text)
    assert "{{" not in said and "{%" not in said
