"""Tests of the appliance; `packaging/test` runs them all."""
