"""Drop optional parameters that the kernel does not use.

    func @k(%a: desc<...>, %a.shape_0: i32 {optional = true})   -->  func @k(%a: desc<...>)    (where %a.shape_0 has no use)

A tensor descriptor comes with parameters for the extents and strides of its tensor. Few kernels use them, and each parameter
costs launch time.
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
