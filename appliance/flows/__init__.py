"""Flows: automations with a trigger and steps, run for each contact who enters, and simulated before they go live.

A flow is edited as a nested `document` of steps. Publishing compiles it into the rows of a version (`versions`), and a
run keeps the version it entered with. Events start runs behind a cursor (`enrollment`), due runs advance step by step
(`engine`), and all waiting state is in rows.
"""
