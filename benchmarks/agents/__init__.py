"""An evaluation of assistants: thirty tasks on a seeded account, graded by what is in the database afterwards.

See README.md beside this file.
"""
