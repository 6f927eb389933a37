"""The palette of the email editor: each kind of section has a place and an icon."""

import pytest

from appliance.content.designs.sections import BY_NAME, KINDS
from ui.widgets.editor_panels import KIND_ICONS, PALETTE, list_palette


def test_every_kind_has_a_place_and_an_icon() -> None:
    """Each kind is in `PALETTE` exactly once, and in `KIND_ICONS`."""
    named = [name for _, names in PALETTE for name in names]
    assert sorted(named) == sorted(BY_NAME)
    assert {*KIND_ICONS} - {""} == {*BY_NAME}


def test_a_kind_missing_from_the_palette_is_still_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds that `PALETTE` does not name are added to the palette."""
    monkeypatch.setattr("ui.widgets.editor_panels.PALETTE", (("Basics", ("text",)), ("Advanced", ("html",))))
    palette = dict(list_palette())
    assert [tile.kind for tile in palette["Basics"]] == ["text"]
    assert palette["Advanced"][0].kind == "html"
    assert {tile.kind for tiles in palette.values() for tile in tiles} == {kind.name for kind in KINDS}
