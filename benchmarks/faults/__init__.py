"""A campaign of faults: random agents meet many kinds of faults, and their effects are counted outside the record."""
