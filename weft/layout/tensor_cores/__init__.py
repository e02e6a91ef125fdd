"""MMAs of tiles as tensor core instructions, and their operands."""
