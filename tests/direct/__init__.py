"""Tests of delivery to the recipients' own servers."""
