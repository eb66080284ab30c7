"""The controller (``stretto serve``): it knows networks, jobs and plans, listens to telemetry, and plans again."""
