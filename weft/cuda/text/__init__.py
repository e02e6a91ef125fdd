"""How a kernel's text is written: lines, names, types, constants, index tables, and the functions that it may call."""
