"""Faults on purpose: kills, broken connections, broken disks, broken clocks; and what is promised in spite of them."""
