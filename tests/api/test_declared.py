"""Endpoints written down when the executable is built: the same paths, and behind each the route of its module."""

import asyncio
import marshal

import pytest

from appliance.api import declared
from appliance.api.routes import ROUTES


def test_what_is_written_down_is_what_routes_declare() -> None:
    """Nothing that the server has to know is lost on the way, and the order stays, which is by what they are found."""
    written = [declared.Endpoint(*one) for one in marshal.loads(marshal.dumps(list(map(tuple, declared.table()))))]
    assert [tuple(one) for one in written] == [
        (route.method, route.path, route.second_id, route.form is not None) for route in ROUTES
    ]


def test_behind_each_number_is_its_own_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for the first who asks, while nothing is loaded."""
    monkeypatch.setattr(declared, "_routes", ())
    for number, route in enumerate(ROUTES):
        assert asyncio.run(declared.route(number)) is route
    assert asyncio.run(declared.route(ROUTES[0])) is ROUTES[0]
