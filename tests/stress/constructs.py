"""Statements that mutants get: Python of every kind, and calls of the language on a name of the kernel, `{name}`."""

from __future__ import annotations

STATEMENTS = """\
x = lambda v: v
def inner(v): return v
class Inner: pass
import math as m
from os import path
global g
del {name}
raise ValueError("no")
assert {name}, "no"
return {name}
yield {name}
pass
break
continue
x = [v for v in {name}]
x = [v * 2 for v in range(3) if v]
x = {{v: v for v in (1, 2)}}
x = {{1: {name}}}
x = {{1, 2}}
x = f"{{{name}:3d}} {{{name}!r}}"
print({name}, "x", f"{{{name}}}")
x, y = {name}
x, *y = {name}
x = y = {name}
{name} += 1
{name} **= 2
{name} @= {name}
{name}[0] = 1
{name}[0:2] = 1
{name}[None, :] = {name}
{name}.field = 1
{name}.append(1)
{name}.sort()
x = {name}[0]
x = {name}[0:4, ::2]
x = {name}[..., None]
x = {name}[-1]
x = {name}.T.T
x = {name}.shape
x = {name}.shape[5]
x = {name}.foo()
x = {name}({name})
x = sum({name})
x = max({name}, 1)
x = min({name})
x = any({name})
x = sorted({name})
x = list(map(abs, {name}))
x = list(zip({name}, {name}))
x = dict(enumerate({name}))
x = str({name}) + "a"
x = "a" * {name}
x = "abc".join({name})
x = int({name})
x = float({name})
x = bool({name})
x = abs({name})
x = round({name}, 2)
x = pow({name}, 2)
x = divmod({name}, 3)
x = len({name})
x = isinstance({name}, int)
x = getattr({name}, "dtype")
setattr({name}, "dtype", 1)
x = hasattr({name}, "dtype")
x = type({name})
x = id({name})
x = range({name})
x = reversed({name})
x = iter({name})
x = next({name})
x = not {name}
x = {name} and 1
x = {name} or {name}
x = 1 < {name} < 3
x = {name} in (1, 2)
x = {name} is None
x = 1 if {name} else {name}
x = {name} if 1 else 2
x = (y := {name})
x = ...
x = None + {name}
x = 1j * {name}
x = b"a"
x = 10 ** 30 + {name}
x = {name} << 100
x = {name} / 0
x = {name} // 0
x = {name} % 0
x = 1 // 0
x = -{name}
x = ~{name}
x: int = {name}
x: gl.constexpr = {name}
x: undefined
for v in {name}: pass
for v in range({name}): x = v
for v in range(3, {name}, -1): break
for v, w in ((1, 2), (3, 4)): x = v + w
for v in gl.static_range(3): x = {name} + v
for v in range(2):\\n    if {name}: continue\\n    x = v
while False: x = 1
while {name}: break
with {name} as v: pass
try:\\n    x = {name}\\nexcept ValueError as e: pass\\nfinally: pass
if {name}: x = 1\\nelse: x = {name}
if {name}: return
x = gl.where({name}, {name}, 0)
x = gl.load({name})
gl.store({name}, {name})
x = gl.sum({name}, 0)
x = gl.sum({name}, axis=7)
x = gl.arange(0, {name})
x = gl.zeros([{name}], gl.float32)
x = gl.full([16], {name}, gl.float16)
x = gl.reshape({name}, [4, 4])
x = gl.convert_layout({name}, 3)
x = gl.expand_dims({name}, 9)
x = gl.broadcast_to({name}, 7)
x = gl.atomic_add({name}, 1)
x = gl.program_id(4)
x = gl.program_id({name})
x = gl.cdiv({name}, 0)
x = gl.device_print({name})
x = gl.static_print({name})
gl.static_assert({name})
gl.device_assert({name})
gl.assume({name})
gl.barrier({name})
x = gl.exp({name})
x = gl.maximum({name}, "a")
x = gl.thread_idx.x + {name}
x = gl.shuffle_down({name}, 1)
x = gl.SIMD[gl.float32, 4]({name})
x = gl.LayoutTensor({name}, gl.Layout((4, 4), (4, 1)))
x = gl.allocate_shared_memory(gl.float32, [{name}], 3)
x = gl.reduce({name}, 0, {name})
x = gl.associative_scan({name}, 0, lambda a, b: a)
x = gl.gather({name}, {name}, 0)
x = gl.join({name}, {name})
x = gl.split({name})
x = gl.cast({name}, "float32")
x = {name}.to({name})
x = {name}.to(gl.float8e5)
x = {name}.load(0)
x = {name}.store({name})
x = {name}.index(0)
x = {name}.slice(0, 4)
x = {name}.tile[4]({name})
x = {name}.split()
x = {name}.item()
""".replace("\\n", "\n").split("\n")
