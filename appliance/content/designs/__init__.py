"""Email designs and the merge language: functions that neither read nor write the database."""
