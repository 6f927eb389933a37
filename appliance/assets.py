"""Files we ship: found beside the packages from a clone and inside the executable alike."""

import marshal
from pathlib import Path
from typing import Any

from appliance import packed

ROOT = Path(__file__).resolve().parent.parent


def path(*parts: str) -> Path:
    """Return where a shipped file or folder is, for example `path("static")`."""
    packed.fetch(parts[0])
    return ROOT.joinpath(*parts)


def written(name: str) -> Any:
    """Return what was written down under a name when the executable was built; None from the sources."""
    try:
        data = path(name).read_bytes()
    except FileNotFoundError:
        return None
    return marshal.loads(data)  # noqa: S302 - our own
