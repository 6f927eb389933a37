"""Tests that call the domain code directly: no server process, no HTTP, a new database for each test."""
