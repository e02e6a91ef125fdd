"""Drop parameters that the launch passes only to those that ask.

    func @k(%a: desc<...>, %a.shape_0: i32 {optional = true})   -->  func @k(%a: desc<...>)    (where %a.shape_0 has no use)

A tensor descriptor brings the extents and strides of its tensor along; few kernels look at them, and each would cost the
launch.
"""

from __future__ import annotations

from weft.ir.core import Func, Region, walk


def drop_parameters(func: Func) -> Func:
    """The function without optional parameters that nothing uses."""
    used = {value for op in walk(func.body) for value in op.uses}
    facts = func.attrs.params
    kept = [i for i, param in enumerate(func.params) if param in used or not facts[i].optional]
    if len(kept) == len(func.params):
        return func
    body = Region(tuple(func.params[i] for i in kept), func.body.ops)
    return func.with_body(body, params=tuple(facts[i] for i in kept))
