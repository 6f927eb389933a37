"""What a start does without, loaded when it is over: the first page and the first message need not wait for it.

Modules import it where they use it. Whoever is quicker than this loads it then, on the thread where it is asked for; so
all enter a library at the same place, at its top: two threads at two ends of a circle of modules find half of it.
"""

import gc
import logging
import time
from importlib import import_module

from appliance import gathered, loading, packed, patterns
from ui import pages

log = logging.getLogger("campanero")

_PUBLIC = ("unsubscribe", "preferences", "hooks", "reading", "forms", "confirm", "media")
# In the order in which somebody may ask for it
MODULES = (
    "appliance.public.clicks",
    "jinja2",
    "ui.guard",
    "appliance.api.routes",
    *(f"ui.pages.{name}" for name in pages.NAMES),
    *(f"appliance.public.{name}" for name in _PUBLIC),
    "appliance.api.login",
    "appliance.api.public_forms",
    "appliance.designs.compiled",
    "appliance.messages.body_encoding",
    "appliance.designs.pasted",
    "mrml",
    "nh3",
    "aiosmtpd.smtp",
    "email.policy",
    "jwt",
    "cryptography",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.serialization",
    "appliance.api.document",
    "appliance.delivery.questions",
    "appliance.delivery.bounded",
    "ua_parser",
    "ua_parser.basic",
    "ua_parser.loaders",
    "phonenumbers",
    "yaml",
)
_BREATH_SECONDS = 0.01


def load() -> None:
    """Load all of it; whoever asks for something meanwhile goes first."""
    for name in MODULES:
        while loading.is_asked():
            time.sleep(_BREATH_SECONDS)
        try:
            import_module(name)
        except Exception:
            # Whoever needs it will say so, too, and to somebody
            log.exception("%s cannot be loaded", name)
        time.sleep(_BREATH_SECONDS)
    for step in (patterns.compile_all, _warm, packed.finish, gathered.finish):
        try:
            step()
        except Exception:
            log.exception("what follows a start failed: %s", step.__name__)
    # As at the end of the start: what was loaded stays, and need not be looked through
    gc.freeze()


def _warm() -> None:
    from appliance.designs import render

    render.warm()
