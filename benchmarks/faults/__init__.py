"""A campaign of faults: random agents are struck in many ways, and what they did is counted outside of the record."""
