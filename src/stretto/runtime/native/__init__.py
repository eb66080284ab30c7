"""Runs programs without Python's lock: one thread of a process, compiled, serves the connections of all its groups."""
