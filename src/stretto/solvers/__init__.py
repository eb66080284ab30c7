"""The thin layer over solvers: build, solve, say what came of it."""
