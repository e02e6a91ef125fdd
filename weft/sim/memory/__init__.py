"""The memory model: stored bytes, the last accesses of each granule, happens-before (vector clocks), and hazard verdicts."""
