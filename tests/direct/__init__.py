"""Tests of direct delivery: sending to the recipients' own servers."""
