"""Which planner: a table of the best one for each size, plans for running processes, and planning again."""
