"""Memory: its bytes, who touched it last, what is ordered before what, and what is a hazard."""
