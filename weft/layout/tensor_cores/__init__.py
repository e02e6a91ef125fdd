"""Products of tiles as instructions of tensor cores, and the operands that these read."""
