"""Barriers, fences and arrivals: where they are needed, who issues them, and why."""
