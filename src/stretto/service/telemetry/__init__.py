"""Telemetry: what links of a network can carry and what they carried, from whoever sees it.

Sources (:mod:`.prometheus`, :mod:`.interfaces`, a process group, ``stretto measure --watch``) make samples
(:mod:`.samples`), and every sample comes in through :meth:`.intake.Intake.take`.
"""
