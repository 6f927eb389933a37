"""Files we ship: found beside the packages from a clone and inside the executable alike."""

from pathlib import Path

from jinja2 import BaseLoader, FileSystemLoader, ModuleLoader

ROOT = Path(__file__).resolve().parent.parent
# Folders of templates, which the executable carries compiled (packaging/campanero.spec)
TEMPLATES = ("ui/html", "appliance/designs/sections", "appliance/public/html")
COMPILED = "compiled-templates"


def path(*parts: str) -> Path:
    """Return where a shipped file or folder is, for example `path("static")`."""
    return ROOT.joinpath(*parts)


def template_loader(folder: str) -> BaseLoader:
    """Return the loader of one of `TEMPLATES`: compiled templates in the executable, their sources in a clone."""
    compiled = path(COMPILED, f"{folder}.zip")
    return ModuleLoader(compiled) if compiled.exists() else FileSystemLoader(path(folder))
