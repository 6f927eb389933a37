"""Email designs and the merge language: pure functions that know no database rows."""
