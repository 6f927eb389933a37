"""Copies on another machine as jobs: their history, their schedule, the test restore and the notices to owners.

What a copy is and how it is stored is in `appliance/ops/copies`.
"""
