"""Automations: what starts them, the ways people take through them, and rehearsals of those ways.

A flow is edited as a nested document of steps. Going live compiles it into the rows of a version (`plan`); runs keep
the version they entered with. Events start runs behind a cursor (`entry`), due runs are taken step by step (`run`), and
nothing waits anywhere but in rows.
"""
