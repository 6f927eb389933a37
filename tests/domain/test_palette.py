"""The palette of the editor: every section kind has a place and an icon of its own."""

import pytest

from appliance.content.designs.sections import BY_NAME, KINDS
from ui.widgets.editor_panels import KIND_ICONS, PALETTE, list_palette


def test_every_kind_is_named_once_with_an_icon() -> None:
    """A new kind needs a line in `PALETTE` and one in `KIND_ICONS`, or it looks unfinished."""
    named = [name for _, names in PALETTE for name in names]
    assert sorted(named) == sorted(BY_NAME)
    assert {*KIND_ICONS} - {""} == {*BY_NAME}


def test_a_kind_without_a_place_is_still_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes last, so that a forgotten line hides no kind."""
    monkeypatch.setattr("ui.widgets.editor_panels.PALETTE", (("Basics", ("text",)), ("Advanced", ("html",))))
    palette = dict(list_palette())
    assert [tile.kind for tile in palette["Basics"]] == ["text"]
    assert palette["Advanced"][0].kind == "html"
    assert {tile.kind for tiles in palette.values() for tile in tiles} == {kind.name for kind in KINDS}
