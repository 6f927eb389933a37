"""Type information of Structs is complete before a second thread uses it (msgspec 0.22 crashes otherwise)."""

import subprocess
import sys

RACE = """
import sys, threading
import msgspec
from appliance.core import validation

sys.setswitchinterval(1e-6)


def define(name, annotations):
    namespace = {"__annotations__": annotations, "__module__": __name__, **dict.fromkeys(annotations)}
    globals()[name] = kind = type(msgspec.Struct)(name, (msgspec.Struct,), namespace)
    return kind


fields = {f"f{number}": "int | str | None" for number in range(20)}
raw = {name: 1 for name in fields}
kinds = []
for number in range(300):
    define(f"Inner{number}", fields)
    kinds.append(define(f"Outer{number}", {"inner": f"Inner{number} | None", **fields}))
if sys.argv[1] == "built":
    validation.build_type_info()
for kind in kinds:
    barrier = threading.Barrier(4)

    def use():
        barrier.wait()
        msgspec.convert(raw, kind)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_prepared_structs_can_be_used_by_any_thread() -> None:
    """Threads that use Structs after `build_type_info` end without an error."""
    done = subprocess.run([sys.executable, "-c", RACE, "built"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
