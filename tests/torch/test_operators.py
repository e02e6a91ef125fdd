"""Operators that a user makes: schemas, fake functions, transformations, copies, and what they cost."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import pytest

import weft.torch
from tests.torch.kernels import BLOCK, accumulate_kernel, launch_scale, scale_kernel
from weft import language as gl
from weft.language.nvidia.hopper import mbarrier, tma
from weft.nvidia.hopper import TensorDescriptor

if TYPE_CHECKING:
    from torch import Tensor


@pytest.fixture
def scale(torch):
    @weft.torch.operator("user::scale")
    def scale(x: Tensor, factor: float = 2.0) -> Tensor:
        x = x.contiguous()  # gradients of sums have strides of 0
        out = torch.empty_like(x)
        launch_scale(x, out, factor)
        return out

    return scale


@pytest.fixture
def differentiable(scale):
    def keep(ctx, inputs, output):
        ctx.factor = inputs[1]

    scale.register_autograd(lambda ctx, grad: (scale(grad, ctx.factor), None), setup_context=keep)
    return scale


@pytest.fixture
def accumulate(torch):
    @weft.torch.operator("user::accumulate", mutates_args=("total",))
    def accumulate(x: Tensor, total: Tensor) -> None:
        accumulate_kernel[(1,)](x, total, x.numel())

    return accumulate


# Schemas


def test_annotations_that_only_a_type_checker_imports(scale):
    assert str(scale.overload._schema) == "user::scale(Tensor x, float factor=2.) -> Tensor"


def test_all_kinds_of_parameters(torch):
    @weft.torch.operator("user::kinds", mutates_args=("out", "more"))
    def kinds(
        x: Tensor, out: Tensor, more: list[Tensor], bias: Tensor | None, shape: list[int], *, name: str = "a",
        to: torch.dtype | None = None, place: torch.device | None = None, exact: bool = True,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        return torch.empty_like(x), torch.empty(shape)

    assert str(kinds.overload._schema) == (
        'user::kinds(Tensor x, Tensor(a1!) out, Tensor(a2!)[] more, Tensor? bias, SymInt[] shape, *, str name="a", '
        "ScalarType? to=None, Device? place=None, bool exact=True) -> (Tensor, Tensor)"
    )
    first, second = kinds(torch.ones(2), torch.ones(2), [torch.ones(2)], None, [3, 4])
    assert (first.shape, second.shape) == ((2,), (3, 4))


def test_a_schema_of_ones_own(torch):
    def double(x):
        return x * 2

    operator = weft.torch.operator("user::double", double, schema="(Tensor x) -> Tensor")
    assert operator(torch.ones(2)).tolist() == [2, 2]


def test_an_operator_without_tensors(torch):
    @weft.torch.operator("user::made")
    def made(size: int) -> Tensor:
        out = torch.ones(size)
        launch_scale(out, out, 3.0)
        return out

    assert made(5).tolist() == [3] * 5
    assert torch.compile(made, backend="aot_eager", fullgraph=True)(5).tolist() == [3] * 5


def test_a_name_declared_again_is_another_operator(torch, scale):
    @weft.torch.operator("user::scale")
    def again(x: Tensor) -> Tensor:
        return x + 1

    assert torch.ops.user.scale(torch.ones(1)).item() == again(torch.ones(1)).item() == 2
    assert weft.torch.OPERATORS["user::scale"] is again


def test_the_function_behind_an_operator(torch, scale):
    assert scale.__name__ == "scale"
    assert repr(scale) == "<operator user::scale>"
    assert scale.fn(torch.ones(2)).tolist() == [2, 2]


# Fake functions


def test_shapes_come_from_the_host_function(torch, scale):
    x = torch.empty(3, 4, device="meta")
    assert scale(x).shape == (3, 4)
    compiled = torch.compile(lambda x: scale(x * 2) + 1, backend="aot_eager", fullgraph=True, dynamic=True)
    for size in (5, 200, 7):
        x = torch.arange(size, dtype=torch.float32)
        assert compiled(x).equal(4 * x + 1)


@weft.autotune([weft.Config({"WIDTH": 64}), weft.Config({"WIDTH": 128})])
@weft.jit
def tuned(x, y, n, WIDTH: gl.constexpr):
    at = gl.program_id(0) * WIDTH + gl.arange(0, WIDTH, gl.BlockedLayout([1], [32], [2], [0]))
    gl.store(y + at, gl.load(x + at, mask=at < n) * 2, mask=at < n)


def test_launches_of_every_kind_are_left_out(torch):
    @weft.torch.operator("user::launches")
    def launches(x: Tensor) -> Tensor:
        n, first, second = x.numel(), torch.empty_like(x), torch.empty_like(x)
        scale_kernel[lambda a: (weft.cdiv(a["n"], BLOCK),)](x, first, n, 2.0)
        tuned[lambda a: (weft.cdiv(a["n"], a["WIDTH"]),)](first, second, n, num_warps=2)
        return second

    compiled = torch.compile(launches, backend="aot_eager", fullgraph=True, dynamic=True)
    for size in (5, 200):
        assert compiled(torch.ones(size)).equal(torch.full((size,), 4.0))


@weft.jit
def copy_by_tma(src, dst):
    tile = gl.allocate_shared_memory(src.dtype, [32, 32], src.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, src.block_type.nbytes)
    tma.async_copy_global_to_shared(src, [0, gl.program_id(0) * 32], bar, tile)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    tma.async_copy_shared_to_global(dst, [0, gl.program_id(0) * 32], tile)
    tma.store_wait(0)


def test_descriptors_of_tensors_without_memory(torch):
    @weft.torch.operator("user::copy")
    def copy_of(x: Tensor) -> Tensor:
        out, layout = torch.empty_like(x), gl.NVMMASharedLayout.get_default_for([32, 32], gl.float32)
        source = TensorDescriptor.from_tensor(x, [32, 32], layout)
        target = TensorDescriptor(out, list(out.shape), list(out.stride()), [32, 32], layout)
        copy_by_tma[weft.cdiv(x.shape[1], 32),](source, target)
        return out

    compiled = torch.compile(copy_of, backend="aot_eager", fullgraph=True, dynamic=True)
    for columns in (32, 100):
        x = torch.randn(32, columns)
        assert compiled(x).equal(x)


def test_sizes_that_depend_on_elements(torch):
    @weft.torch.operator("user::positive")
    def positive(x: Tensor) -> Tensor:
        return x[x > 0].clone()

    @positive.register_fake
    def _(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    x = torch.tensor([1.0, -1.0, 2.0])
    assert positive(x).tolist() == [1, 2]
    assert torch.compile(positive, backend="aot_eager", fullgraph=True)(x).tolist() == [1, 2]


# Arguments that are written to


def test_a_written_argument(torch, accumulate):
    x, total = torch.ones(5), torch.ones(5)
    version = total._version
    accumulate(x, total)
    assert total.tolist() == [2] * 5
    assert (total._version, x._version) == (version + 1, 0)
    with torch.inference_mode():
        accumulate(x, total)
    assert total._version == version + 2


def test_a_written_argument_in_a_graph(torch, accumulate):
    def twice(x, total):
        accumulate(x, total)
        accumulate(x * 2, total)
        return total * 2

    x, total = torch.ones(5), torch.ones(5)
    assert torch.compile(twice, backend="aot_eager", fullgraph=True)(x, total).tolist() == [8] * 5
    assert total.tolist() == [4] * 5
    torch.library.opcheck(accumulate.overload, (x, total))


def test_autograd_notices_a_tensor_that_was_written_to(torch, accumulate):
    x = torch.ones(5, requires_grad=True)
    y = x.exp()
    accumulate(torch.ones(5), y.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# Transformations


def test_gradients_of_gradients(torch, differentiable):
    x = torch.ones(3, requires_grad=True)
    (first,) = torch.autograd.grad((differentiable(x, 3.0) ** 2).sum(), x, create_graph=True)
    assert first.tolist() == [18] * 3
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [18] * 3
    torch.library.opcheck(differentiable.overload, (x, 3.0))


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:`torch.jit")
def test_functional_gradients(torch, differentiable):
    x = torch.arange(3.0)

    def loss(x):
        return differentiable(x * x, 3.0).sum()

    assert torch.func.grad(loss)(x).equal(6 * x)
    assert torch.func.hessian(loss)(x).equal(6 * torch.eye(3))
    assert torch.func.jacrev(lambda x: differentiable(x, 3.0))(x).equal(3 * torch.eye(3))


def test_gradients_of_each_sample(torch):
    """vmap over grad, through the gradients' own rules of vmap."""
    x, weight = torch.randn(5, 3, 16), torch.randn(16, 24)

    def loss(weight, x):
        return weft.torch.softmax(weft.torch.matmul(x, weight)).square().sum()

    got = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, x)
    want = torch.vmap(torch.func.grad(lambda w, x: (x @ w).softmax(-1).square().sum()), in_dims=(None, 0))(weight, x)
    torch.testing.assert_close(got, want, atol=0.02, rtol=0.02)


def test_another_function_where_a_gradient_is_wanted(torch, differentiable):
    @weft.torch.operator("user::twice")
    def twice(x: Tensor) -> Tensor:
        return x + x

    twice.register_differentiable(lambda x: differentiable(x, 2.0))
    x = torch.ones(3, requires_grad=True)
    assert twice(x).grad_fn.name().startswith("user_scale")
    compiled = torch.compile(lambda x: twice(x).sum(), backend="aot_eager", fullgraph=True)
    for run in (lambda x: twice(x).sum(), compiled):
        assert torch.autograd.grad(run(x), x)[0].tolist() == [2] * 3
    with torch.no_grad():
        assert twice(x).tolist() == [2] * 3
    torch.library.opcheck(twice.overload, (x,))


def test_a_gradient_of_a_list(torch):
    @weft.torch.operator("user::sum_of")
    def sum_of(parts: list[Tensor]) -> Tensor:
        return torch.stack(parts).sum(0)

    sum_of.register_autograd(lambda ctx, grad: ([grad] * ctx.count,), setup_context=lambda ctx, inputs, output: setattr(
        ctx, "count", len(inputs[0])
    ))  # fmt: skip
    parts = [torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)]
    sum_of(parts).sum().backward()
    assert [part.grad.tolist() for part in parts] == [[1] * 3] * 2


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_without_a_rule_calls_once_for_each(torch, scale):
    x = torch.arange(6.0).reshape(3, 2)
    assert torch.vmap(scale)(x).equal(2 * x)


def test_vmap_with_a_rule(torch, scale):
    calls = []

    @scale.register_vmap
    def _(info, in_dims, x, factor=2.0):
        calls.append((info.batch_size, in_dims))
        return scale(x, factor), in_dims[0]

    x = torch.arange(6.0).reshape(3, 2)
    assert torch.vmap(scale)(x).equal(2 * x)
    assert calls == [(3, (0, None))] or calls == [(3, (0,))]


@pytest.mark.parametrize("dtype", ["bfloat16", None])
def test_autocast(torch, scale, dtype):
    x = torch.ones(3)
    with torch.autocast("cpu", torch.float16):
        assert scale(x).dtype == torch.float32
    scale.register_autocast("cpu", dtype)
    with torch.autocast("cpu", torch.float16):
        assert scale(x).dtype == (torch.bfloat16 if dtype else torch.float16)
        assert scale(x, factor=3.0).tolist() == [3] * 3
    assert scale(x).dtype == torch.float32


# Modules


def test_copies_of_a_module(torch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(16, 16))
            self.activation = weft.torch.softmax

        def forward(self, x):
            return self.activation(weft.torch.matmul(x, self.weight))

    model, x = Model(), torch.randn(3, 16)
    copied = copy.deepcopy(model)
    assert copied.activation is weft.torch.softmax
    assert copied(x).equal(model(x))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert compiled(x).equal(model(x))


def test_pickling(scale):
    for operator in (scale, weft.torch.topk):
        assert pickle.loads(pickle.dumps(operator)) is operator  # noqa: S301 - of this process


def test_the_profiler_shows_the_operator(torch, scale):
    with torch.profiler.profile() as profile:
        scale(torch.ones(3))
    assert "user::scale" in {event.key for event in profile.key_averages()}


def test_subclasses_and_modes_see_the_operator(torch, scale):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Record():
        scale(torch.ones(3))
    assert "user.scale.default" in seen


def test_a_call_is_cheaper_than_that_of_a_custom_op(torch, scale, monkeypatch):
    """Python functions that a call runs, which tell times on any machine."""
    import sys

    def count(function, *args):
        calls = []
        function(*args)
        sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
        try:
            function(*args)
        finally:
            sys.setprofile(None)
        return calls

    monkeypatch.setattr("weft.torch.contract.Contract.checked", lambda self, function, args, keywords: None)
    plain = weft.torch.operator("user::plain", lambda x: None, schema="(Tensor x) -> ()")
    custom = torch.library.custom_op("user::custom", lambda x: None, mutates_args=(), schema="(Tensor x) -> ()")
    calls = count(plain, torch.ones(3))
    # The operator, PyTorch's overload, autograd, the kernel of the device (on the CPU with the stand-in for the checks).
    assert calls == ["__call__", "__call__", "kernel", "named", "simulated", "<lambda>"]
    assert len(calls) < len(count(custom, torch.ones(3)))
