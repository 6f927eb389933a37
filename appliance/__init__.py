"""Campanero's domain, its doors and the process that holds them together."""

from appliance import spared

VERSION = "0.1.0"

spared.spare()
