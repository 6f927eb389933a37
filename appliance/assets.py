"""Files we ship: found beside the packages from a clone and inside the executable alike."""

from pathlib import Path

from appliance import packed

ROOT = Path(__file__).resolve().parent.parent


def path(*parts: str) -> Path:
    """Answer where a shipped file or folder is, for example `path("static")`."""
    packed.fetch(parts[0])
    return ROOT.joinpath(*parts)
