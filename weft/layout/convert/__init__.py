"""Plans for conversions of a tile from one distributed layout to another."""

from weft.layout.convert.plans import Plan, describe, is_trivial, plan_conversion

__all__ = ["Plan", "describe", "is_trivial", "plan_conversion"]
