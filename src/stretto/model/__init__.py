"""The nouns: errors, units, topologies, collectives, plans, timelines. They know nothing of the rest of stretto."""
