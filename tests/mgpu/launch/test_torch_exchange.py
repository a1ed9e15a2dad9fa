"""`as_torch_kernel` without PyTorch: the missing package, and the exchange with NumPy arrays in its place."""

from __future__ import annotations

import contextlib
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgpu
from mgpu.errors import KernelTypeError, MissingPackageError


class Tensor:
    """As much of a tensor as the exchange asks for, over a NumPy array."""

    layout = "strided"
    device = types.SimpleNamespace(type="cpu", index=None)
    requires_grad = False

    def __init__(self, array):
        self.array = array
        self.dtype = f"torch.{array.dtype}"

    def detach(self):
        return self

    resolve_conj = resolve_neg = detach

    def contiguous(self):
        return self if self.array.flags.c_contiguous else Tensor(np.ascontiguousarray(self.array))

    def clone(self):
        return Tensor(self.array.copy())

    def data_ptr(self):
        return self.array.ctypes.data

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.fixture
def stand_in(monkeypatch):
    package = types.SimpleNamespace(
        Tensor=Tensor,
        strided="strided",
        is_grad_enabled=lambda: True,
        from_dlpack=lambda array: Tensor(np.from_dlpack(array)),
        no_grad=contextlib.nullcontext,
    )
    monkeypatch.setitem(sys.modules, "torch", package)


@mgpu.as_torch_kernel
@mgpu.kernel(out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32))
def torch_double(x_ref, out_ref):
    out_ref[...] = x_ref[...] * 2


def test_missing_package_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError, match=r"as_torch_kernel needs PyTorch.*pip install torch") as caught:
        torch_double(None)
    assert isinstance(caught.value, ImportError)


def test_name_and_documentation_are_kept():
    assert torch_double.__name__ == "torch_double"


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("view", [np.asarray, np.transpose, lambda x: x[::-1]], ids=["plain", "transposed", "reversed"])
def test_tensors_go_through_a_kernel(view):
    x = view(np.arange(64 * 64, dtype=np.float32).reshape(64, 64))
    out = torch_double(Tensor(x))
    assert isinstance(out, Tensor)
    np.testing.assert_array_equal(out.array, x * 2)


@pytest.mark.usefixtures("stand_in")
def test_result_that_is_an_argument_is_copied():
    x = Tensor(np.arange(1024, dtype=np.float32))
    out = mgpu.as_torch_kernel(lambda array: array)(x)
    assert out.data_ptr() != x.data_ptr()
    np.testing.assert_array_equal(out.array, x.array)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_wide_types_are_refused(dtype):
    with pytest.raises(KernelTypeError, match=r"test_torch_exchange.py:\d+ .*narrow"):
        torch_double(Tensor(np.zeros((64, 64), dtype)))


@pytest.mark.usefixtures("stand_in")
def test_types_that_jax_does_not_have_are_refused():
    x = Tensor(np.zeros(4, np.float32))
    x.dtype = "torch.qint8"
    with pytest.raises(KernelTypeError, match=r"torch.qint8, which JAX does not have"):
        mgpu.as_torch_kernel(jnp.sin)(x)
