"""The controller: a service that knows networks, jobs and plans, listens to telemetry, and plans again.

    store        what it knows, in SQLite or PostgreSQL: every write is one transaction of the leader
    planner      a process of its own that plans, weighs and publishes
    app          what it says over HTTP
    client       what asks it; needs nothing but Python's standard library

All but the client need the extra ``stretto[service]``.
"""
