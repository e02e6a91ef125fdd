"""What each operation does: one file for each family of `weft/ops`, and what several of them share."""
