"""What a rendering costs grows with the mail: once for a message, not once for each person."""

import time

from appliance.content.designs.render import render_design
from tests.designs.samples import LOOK, MAIL


def _seconds(times: int) -> float:
    """Return the processor time for a mail so many times as long, the least of five."""
    taken = []
    for number in range(5):
        document = MAIL | {"sections": MAIL["sections"] * times, "number": number}
        begin = time.thread_time()
        render_design(document, LOOK)
        taken.append(time.thread_time() - begin)
    return min(taken)


def test_a_mail_eight_times_as_long_takes_about_eight_times_as_long() -> None:
    """And not the square of it."""
    render_design(MAIL, LOOK)  # with the templates
    assert _seconds(8) < 24 * _seconds(1)


def test_the_same_mail_is_rendered_once() -> None:
    """The second time it is the first one's."""
    made = render_design(MAIL, LOOK)
    assert render_design(dict(MAIL), LOOK) is made
