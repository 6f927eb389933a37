"""Campanero's domain, its doors and the process that holds them together."""

from appliance import spared, tuples

VERSION = "0.1.0"

spared.spare()
tuples.quicken()
