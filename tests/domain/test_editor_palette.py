"""The palette of the email editor: each kind of section has a place and an icon."""

from pathlib import Path

import pytest

from appliance.content.designs.sections import BY_NAME, KINDS
from ui.widgets.editor_panels import PALETTE, list_palette

SPRITE = Path(__file__).parents[2] / "static" / "icons.svg"


def test_every_kind_has_a_place_and_an_icon() -> None:
    """Each kind is in `PALETTE` exactly once, and its icon is a symbol of the sprite."""
    named = [name for _, names in PALETTE for name in names]
    assert sorted(named) == sorted(BY_NAME)
    symbols = SPRITE.read_text(encoding="utf-8")
    assert [kind.name for kind in KINDS if f'<symbol id="{kind.icon}"' not in symbols] == []


def test_a_kind_missing_from_the_palette_is_still_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds that `PALETTE` does not name are added to the palette."""
    monkeypatch.setattr("ui.widgets.editor_panels.PALETTE", (("Basics", ("text",)), ("Advanced", ("html",))))
    palette = dict(list_palette())
    assert [tile.kind for tile in palette["Basics"]] == ["text"]
    assert palette["Advanced"][0].kind == "html"
    assert {tile.kind for tiles in palette.values() for tile in tiles} == {kind.name for kind in KINDS}
