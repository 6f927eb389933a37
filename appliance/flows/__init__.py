"""Flows: automations with a trigger and steps, run for each contact who enters, and simulated before they go live.

A flow is edited as a nested `document` of steps. Publishing compiles it into the rows of a version (`versions`), and a
run keeps the version with which it entered. New events start runs (`enrollment`), and due runs advance step by step
(`engine`). The state of waiting runs is only in the database.
"""
