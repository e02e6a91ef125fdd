"""How each operation becomes CUDA text: one file for each family of `weft/ops`, and what several of them share."""
