"""The cost of rendering grows linearly with the email, and the same email is rendered once."""

import time

from appliance.content.designs.render import render_design
from tests.designs.samples import LOOK, MAIL


def _seconds(times: int) -> float:
    """Return the processor time for an email `times` as long, the minimum of five."""
    taken = []
    for number in range(5):
        document = MAIL | {"sections": MAIL["sections"] * times, "number": number}
        begin = time.thread_time()
        render_design(document, LOOK)
        taken.append(time.thread_time() - begin)
    return min(taken)


def test_rendering_time_is_linear() -> None:
    """An email eight times as long takes less than 24 times as long, not 64 times."""
    render_design(MAIL, LOOK)  # loads the templates
    assert _seconds(8) < 24 * _seconds(1)


def test_renderings_are_cached() -> None:
    """A second rendering of the same document returns the first result."""
    design = render_design(MAIL, LOOK)
    assert render_design(dict(MAIL), LOOK) is design
