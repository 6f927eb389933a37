"""Runs in the executable before all else: whatever is imported from here on is found in one piece."""

import gc
import os
import sys

gc.disable()  # while modules load nothing becomes garbage; `cli` and `server` look again

from appliance import gathered  # noqa: E402 - after the line above, or it would do nothing

gathered.begin(sys._MEIPASS)  # type: ignore[attr-defined]  # only an executable has it
# Where it was installed unpacked; of one file `packed` does it, with what it unpacks
beside = set(os.listdir(sys._MEIPASS))  # noqa: PTH208 - without a library
sys.path += [f"{sys._MEIPASS}/{name}" for name in ("rest.zip", "zones.zip") if name in beside]
