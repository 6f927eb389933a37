"""How long a rendering takes: once for a message, not once for each person."""

import time

from appliance.designs.render import render, warm
from tests.designs.samples import LOOK, MAIL


def test_a_mail_of_twelve_sections_is_rendered_in_a_moment() -> None:
    """Twelve sections in less than 15 ms of processor time, and nothing the second time."""
    warm()
    assert len(MAIL["sections"]) == 12
    taken = []
    for number in range(7):
        document = MAIL | {"number": number}
        begin = time.thread_time()
        made = render(document, LOOK)
        taken.append(time.thread_time() - begin)

    assert sorted(taken)[3] < 0.015
    assert render(document, LOOK) is made
