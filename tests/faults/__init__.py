"""Deliberate faults: kills, broken connections, disks and clocks; and the promises that hold in spite of them."""
