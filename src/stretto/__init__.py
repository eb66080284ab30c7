"""stretto: plans for collectives between accelerators, over networks that are not uniform."""

__version__ = "0.1.0"
