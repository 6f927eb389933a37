"""Tests of the test kit itself, against the standard library."""
