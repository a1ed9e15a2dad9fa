"""`as_torch_kernel` with PyTorch itself: values, memory, dtypes, gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import mgpu
from mgpu.errors import DeviceError, KernelTypeError, Unsupported

torch = pytest.importorskip("torch")


def double_body(x_ref, out_ref):
    out_ref[...] = x_ref[...] * 2


def double_of(shape, dtype):
    return mgpu.kernel(double_body, out_type=jax.ShapeDtypeStruct(shape, dtype), name="double")


double = double_of((128,), jnp.float32)
torch_double = mgpu.as_torch_kernel(double)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
def test_values_and_dtypes(dtype):
    x = torch.arange(128).to(getattr(torch, dtype))
    out = mgpu.as_torch_kernel(double_of((128,), dtype))(x)
    assert out.dtype == x.dtype
    assert out.device == x.device
    assert torch.equal(out, x * 2)


def test_pallas_call():
    call = mgpu.pallas_call(double_body, out_shape=jax.ShapeDtypeStruct((128,), jnp.float32))
    x = torch.arange(128.0)
    assert torch.equal(mgpu.as_torch_kernel(call)(x), x * 2)


def test_several_kernels_and_other_operations_around_them():
    def function(pair, *, scale):
        a, b = pair["a"], pair["b"]
        return {"sum": double(jnp.sin(double(a)) + b) * scale, "scale": scale}

    a, b = torch.linspace(0, 1, 128), torch.linspace(2, 3, 128)
    out = mgpu.as_torch_kernel(function)({"a": a, "b": b}, scale=3)
    assert out["scale"] == 3
    torch.testing.assert_close(out["sum"], (torch.sin(a * 2) + b) * 6)
    jitted = mgpu.as_torch_kernel(jax.jit(double))
    assert torch.equal(jitted(a), a * 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(256.0)[::2],
        lambda: torch.arange(256.0).reshape(128, 2).T[1],
        lambda: torch.tensor(3.0).expand(128),
        lambda: torch.arange(129.0)[1:],
    ],
    ids=["step", "column", "expanded", "offset"],
)
def test_views(make):
    x = make()
    assert torch.equal(torch_double(x), x * 2)


def test_transposed_matrix():
    x = torch.arange(64.0 * 128).reshape(64, 128).T
    assert torch.equal(mgpu.as_torch_kernel(double_of((128, 64), jnp.float32))(x), x * 2)


def test_conjugate_views_are_resolved():
    x = torch.complex(torch.arange(4.0), torch.arange(4.0)).conj()
    assert torch.equal(mgpu.as_torch_kernel(jnp.real)(x), x.real)
    assert torch.equal(mgpu.as_torch_kernel(jnp.imag)(x), torch.arange(4.0) * -1)


def test_contiguous_tensor_is_not_copied():
    x = torch.zeros(4096)
    seen = []
    mgpu.as_torch_kernel(lambda array: seen.append(array.unsafe_buffer_pointer()))(x)
    assert seen == [x.data_ptr()]


def test_results_are_writable_and_share_nothing():
    x = torch.arange(4096.0)
    same, twice, again = mgpu.as_torch_kernel(lambda a: (a, b := a + a, b))(x)
    for result in (same, twice, again):
        result.zero_()
        result += torch.arange(4096.0)
    assert torch.equal(x, torch.arange(4096.0))
    assert len({t.data_ptr() for t in (x, same, twice, again)}) == 4
    out = torch_double(torch.ones(128))
    out += 1
    assert torch.equal(out, torch.full((128,), 3.0))


@pytest.mark.parametrize("dtype", ["int64", "float64", "uint64", "complex128"])
def test_types_that_would_be_narrowed_are_refused(dtype):
    x = torch.zeros(128, dtype=getattr(torch, dtype))
    with pytest.raises(KernelTypeError, match=rf"test_torch_kernel.py:\d+ .*{dtype}.*narrow.*jax_enable_x64"):
        torch_double(x)


def test_wide_types_with_x64():
    with jax.enable_x64(True):
        out = mgpu.as_torch_kernel(lambda x: x + 1)(torch.tensor([2**40]))
    assert out.dtype == torch.int64
    assert out.item() == 2**40 + 1


def test_what_jax_cannot_take_is_refused():
    with pytest.raises(KernelTypeError, match=r"layout torch.sparse_coo.*to_dense"):
        torch_double(torch.ones(128).to_sparse())
    with pytest.raises(DeviceError, match=r"on meta, which JAX does not see"):
        torch_double(torch.ones(128, device="meta"))
    with pytest.raises(KernelTypeError, match=r"tensor 1 among the arguments is on meta, the first one on cpu"):
        mgpu.as_torch_kernel(jnp.add)(torch.ones(2), torch.ones(2, device="meta"))


def test_gradients_are_those_of_the_function():
    @jax.custom_vjp
    def doubled(x):
        return double(x)

    doubled.defvjp(lambda x: (double(x), None), lambda _, g: (double(g),))

    def function(x, scale, index):
        return doubled(x) * scale, index + 1

    x = torch.linspace(0, 1, 128, requires_grad=True)
    scale = torch.tensor(3.0, requires_grad=True)
    index = torch.arange(4, dtype=torch.int32)
    out, following = mgpu.as_torch_kernel(function)(torch.sin(x), scale, index)
    assert out.requires_grad
    assert not following.requires_grad
    (out**2).sum().backward()

    expected_x = torch.linspace(0, 1, 128, requires_grad=True)
    expected_scale = torch.tensor(3.0, requires_grad=True)
    ((torch.sin(expected_x) * 2 * expected_scale) ** 2).sum().backward()
    torch.testing.assert_close(x.grad, expected_x.grad)
    torch.testing.assert_close(scale.grad, expected_scale.grad)


def test_without_a_derivative():
    x = torch.ones(128, requires_grad=True)
    with torch.no_grad():
        assert not torch_double(x).requires_grad
    out = torch_double(x)
    assert torch.equal(out, x * 2)
    with pytest.raises(Unsupported, match=r"^test_torch_kernel.py:\d+ as_torch_kernel\(double_body\).*jax.custom_vjp"):
        out.sum().backward()
    with pytest.raises(Unsupported, match="complex"):
        mgpu.as_torch_kernel(jnp.real)(torch.zeros(4, dtype=torch.complex64, requires_grad=True))
