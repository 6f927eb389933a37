"""A promotion without a lease, where only a person knows that the other machine is off."""

from pathlib import Path

import pytest

from appliance.ops.fencing.record import LeaseRecord
from appliance.ops.standby import place, promote
from appliance.ops.standby.place import Source
from appliance.settings import config
from appliance.settings.schema import Config


def test_a_lease_of_a_failed_promotion_does_not_say_what_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease may be older than what the other machine sent last, so all due messages are held."""
    lease = LeaseRecord(1, 1, "a" * 32, "old", "p", 1, 30, False, 1_000, [], 600)
    place.save_source(tmp_path, Source("s3://copies/live", lease))
    monkeypatch.setattr(config, "current", Config)
    for name in ("_require_usable_copy", "_wait_for_rest", "_require_silence", "_end_following"):
        monkeypatch.setattr(promote, name, lambda *_: None)
    monkeypatch.setattr(promote, "_install", lambda _directory, source, *_: source)
    source = promote.promote(tmp_path, True, lambda _: None)
    assert source == Source("s3://copies/live") == place.load_source(tmp_path)
