"""Simplification of register arrays: what is taken out of an array that was put together is what went in."""

from __future__ import annotations

import pytest

from tests.passes.threads import Threads, lowered, pointers
from tests.sim.build import Kernel
from weft.ir.core import Func, OpDef, Value, walk
from weft.ir.types import Pointer, RegsType, ScalarType, float32, int1, int32
from weft.ops import arith, memory, regs, thread
from weft.passes.dce import dce
from weft.passes.simplify import simplify


class Vectors(Threads):
    """Registers that are stored to a shared array, one array a store."""

    def __init__(self) -> None:
        super().__init__(*pointers("p"), ("a", float32), ("b", float32), ("n", int32), ("on", int1))
        self.room = self.share(float32, 64, "room")

    def done(self) -> Func:
        return dce(simplify(super().done()))

    def keep(self, value: Value) -> None:
        array = value if isinstance(value.type, RegsType) else self.emit(regs.concat, value)
        self.emit(thread.store_shared, self.room, self.value(0), array, None, offsets=(0,) * array.type.count, vec=1)

    def vector(self, count: int = 4) -> Value:
        return self.load(self.params[0], 0, count, name="v")


def kinds(func: Func) -> list[str]:
    """What there is beside constants, addresses, memory and accesses to it."""
    return [op.name for op in walk(func.body) if op.name.startswith("regs.")]


def stored(func: Func) -> Value:
    (op,) = (op for op in walk(func.body) if op.kind is thread.store_shared)
    value = op.operand("value")
    assert value is not None
    return value


def maker(value: Value, func: Func) -> tuple[OpDef | None, dict]:
    return next(((op.kind, op.attrs) for op in walk(func.body) if value in op.results), (None, {}))


def test_an_element_of_a_vector_that_was_put_together():
    k = Vectors()
    _, a, b, *_ = k.params
    both = k.emit(regs.concat, a, k.vector(2), b)
    k.keep(k.emit(arith.add, k.emit(regs.extract, both, index=0), k.emit(regs.extract, both, index=3)))
    func = k.done()
    (total,) = (op for op in walk(func.body) if op.kind is arith.add)
    assert list(total.uses) == list(func.params[1:3])
    assert kinds(func) == ["regs.splat"], "the sum, as an array of one"


def test_an_element_of_a_part():
    k = Vectors()
    both = k.emit(regs.concat, k.params[1], k.vector(4))
    k.keep(k.emit(regs.extract, both, index=3))
    func = k.done()
    assert maker(stored(func), func) == (regs.gather, {"table": (2,)})
    assert kinds(func) == ["regs.gather"]


@pytest.mark.parametrize("table", [(0, 1, 2, 3), (3, 1, 1, 0, 2)])
def test_all_elements_of_one_vector(table):
    k = Vectors()
    v = k.vector()
    k.keep(k.emit(regs.concat, *(k.emit(regs.extract, v, index=i) for i in table)))
    func = k.done()
    kind, attrs = maker(stored(func), func)
    assert kind is (memory.load_regs if table == (0, 1, 2, 3) else regs.gather)
    assert attrs.get("table", (0, 1, 2, 3)) == table


def test_permutations_of_permutations():
    k = Vectors()
    once = k.emit(regs.gather, k.vector(), table=(3, 2, 1, 0))
    k.keep(k.emit(regs.gather, once, table=(3, 2, 1, 0)))
    func = k.done()
    assert maker(stored(func), func)[0] is memory.load_regs


def test_equal_elements():
    k = Vectors()
    a = k.params[1]
    spread = k.emit(regs.splat, a, count=4)
    k.keep(k.emit(regs.gather, k.emit(regs.concat, spread, a), table=(4, 0)))
    func = k.done()
    assert maker(stored(func), func) == (regs.splat, {"count": 2})


def test_numbers():
    k = Vectors()
    ones = k.emit(regs.splat, k.number(1, float32), count=3)
    k.keep(k.emit(regs.concat, ones, k.number(1, float32)))
    func = k.done()
    assert maker(stored(func), func) == (arith.constant, {"value": 1, "type": RegsType(float32, 4)})


def test_zeros_of_two_signs_stay_two():
    k = Vectors()
    k.keep(k.emit(regs.concat, k.number(0.0, float32), k.number(-0.0, float32)))
    assert kinds(k.done()) == ["regs.concat"]


def test_an_array_of_one_register():
    k = Vectors()
    one = k.load(k.params[0], 0)
    k.keep(one)
    func = k.done()
    assert maker(stored(func), func)[0] is memory.load_regs and kinds(func) == []


def test_masks():
    """One predicate for all accesses; none where all are on; no store where none is."""
    k = Vectors()
    p, *_, on = k.params
    v = k.emit(regs.concat, *[k.params[1]] * 2)
    places = {"offsets": ((0, 1),), "registers": ((0,), (1,)), "vec": 1}
    masks = [k.emit(regs.splat, c, count=2) for c in (on, k.number(True, int1), k.number(False, int1))]
    for mask in masks:
        k.emit(memory.store_regs, p, v, mask, **places)
    k.keep(k.emit(memory.load_regs, p, masks[1], v, count=2, **places))
    k.emit(memory.store_regs, p, k.emit(memory.load_regs, p, masks[2], v, count=2, **places), None, **places)
    func = k.done()
    stores = [op for op in walk(func.body) if op.kind is memory.store_regs]
    assert [op.operand("mask") for op in stores] == [func.params[-1], None, None]
    (load,) = (op for op in walk(func.body) if op.kind is memory.load_regs)
    assert load.operand("mask") is load.operand("other") is None
    assert stores[2].operand("value") is stores[0].operand("value")


def test_constant_strides_are_offsets():
    k = Vectors()
    p, n = k.params[0], k.params[3]
    places = {"offsets": ((0, 1), (0, 2), (1, 3)), "registers": ((0,), (1,)), "vec": 1}
    k.keep(k.emit(memory.load_regs, p, None, None, k.number(8), n, count=2, **places))
    func = k.done()
    (load,) = (op for op in walk(func.body) if op.kind is memory.load_regs)
    assert load.attrs["offsets"] == ((0, 17), (1, 3))
    assert list(load.operands) == [func.params[0], None, None, func.params[3]]


def parts(on):
    """Accesses to the parts of two vectors, with a constant stride and another, under the predicates that `on` makes."""
    k = Kernel(("p", Pointer(float32)), ("n", int32), ("on", int1), stage="lowered")
    p, n = k.params[:2]
    places = {"offsets": ((0, 4), (0, 2), (4, 8)), "registers": ((0, 1), (2, 3)), "vec": 2}
    x = k.emit(memory.load_regs, p, None, None, offsets=((0,),), registers=((0, 1, 2, 3),), vec=4, count=4)
    end = k.emit(regs.splat, k.number(1), count=2)
    mask = k.emit(regs.splat, on(k), count=2)
    part = k.emit(memory.load_part, p, x, mask, None, end, k.number(8), n, **places)
    k.emit(memory.store_part, p, part, mask, None, end, k.number(8), n, **places)
    return dce(simplify(k.done()))


def test_constant_strides_of_parts_are_offsets():
    func = parts(lambda k: k.params[2])
    found = [op for op in walk(func.body) if op.kind in (memory.load_part, memory.store_part)]
    assert [op.attrs["offsets"] for op in found] == [((0, 20), (4, 8))] * 2
    assert [op.operands[-1] for op in found] == [func.params[1]] * 2
    assert all(len(op.operands) == len(op.kind.operands) + 1 for op in found)


def test_parts_of_no_vectors_are_dropped():
    func = parts(lambda k: k.number(False, int1))
    assert [op.name for op in walk(func.body) if op.name.startswith("memory.")] == []


def test_loads_from_memory_are_not_merged_and_stores_stay():
    k = Threads(*pointers("p"), ("x", float32))
    p, x = k.params
    own, room = k.own(float32, 4, "own"), k.share(float32, 4, "room")
    for _ in range(2):
        k.write(own, 1, x)
        k.put(room, 0, k.emit(arith.add, k.read(own, 1), k.get(room, 0)))
    k.store(p, 0, k.emit(arith.add, k.load(p, 0), k.load(p, 0)))
    func = dce(simplify(k.done()))
    names = [op.name for op in walk(func.body)]
    assert names.count("thread.store_local") == names.count("thread.store_shared") == 2
    assert names.count("thread.load_local") == names.count("thread.load_shared") == names.count("memory.load_regs") == 2


def test_products_of_vectors_and_of_threads_are_contracted():
    k = Vectors()
    v = k.vector(4)
    k.keep(k.add(k.mul(v, v), v))
    one = k.emit(regs.extract, v, index=0)
    k.store(k.params[0], 0, k.add(one, k.mul(one, k.params[1])))
    names = [(op.name, type(op.result.type)) for op in walk(lowered(Threads.done(k)).body) if op.name == "arith.fma"]
    assert names == [("arith.fma", RegsType), ("arith.fma", ScalarType)]
