"""Messages made ready: what stands in the way of all of them is held against none."""

from appliance.db import work
from appliance.db.open import connection
from appliance.errors import Later
from appliance.messages.line import Line
from appliance.work.making import Maker
from tests.domain.home import Home


def test_a_database_that_cannot_be_read_costs_nobody_the_message(home: Home) -> None:
    """While a table is out of reach the message waits; it is made as soon as the table is back."""
    home.send(home.campaign(home.list_of(home.contact("a@example.org").id).id))
    claims, maker = Line().candidates(2), Maker()
    try:
        work.write(lambda: connection().execute("ALTER TABLE template_revision RENAME TO away").fetchall())
        waiting = maker.make(claims)
        work.write(lambda: connection().execute("ALTER TABLE away RENAME TO template_revision").fetchall())
        made = maker.make(claims)
    finally:
        maker.close()

    assert [(one.fault and type(one.fault.error), one.fault and one.fault.skip_reason) for one in waiting] == [
        (Later, None)
    ]
    assert [one.fault for one in made] == [None] and made[0].prepared is not None
