"""Linear maps over F2 between named dimensions, the one meaning behind every layout."""

from weft.layout.linear.maps import LinearLayout

__all__ = ["LinearLayout"]
