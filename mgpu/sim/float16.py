"""float16 and the float32 that carries it, by arithmetic on the bits of many elements at a time.

NumPy converts element by element, which takes eight times as long. Its own casts stay in charge of the rare elements
whose bits follow other rules: zeros, subnormal numbers, infinities and NaNs.
"""

from __future__ import annotations

import numpy as np

_CHUNK = 1 << 16  # elements whose bits fit into the caches
_RARE_PART = 8  # with one rare element in so many, a cast of all of them is as fast

_SIGN = np.uint32(0x80000000)
_EXPONENT = np.uint32(0x7F800000)
_EXTRA_BITS = np.uint32(13)  # of float32's mantissa
_SMALLEST_NORMAL = np.uint32(113 << 23)  # 2**-14
_EXPONENTS = np.uint32(30 << 23)  # of normal float16 numbers
_LARGEST_EXPONENT = np.uint32(142 << 23)  # of 2**15: from 65520 on, values round to infinity
_TO_LAST_PLACE = np.uint32((13 << 23) + (1 << 22))  # from 2**e to 1.5 * 2**(e + 13)


def float16_to_float32(array: np.ndarray) -> np.ndarray:
    """Returns the values of a float16 array as float32."""
    source = np.ascontiguousarray(array).reshape(-1)
    result = np.empty(source.shape, np.float32)
    bits, wide = source.view(np.int16), result.view(np.int32)
    for begin in range(0, source.size, _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        out = wide[chunk]
        out[...] = bits[chunk]  # with the sign in all upper bits
        out <<= np.int32(_EXTRA_BITS)
        out &= np.int32(-0x70002000)  # sign, exponent, mantissa
        out += np.int32((127 - 15) << 23)
        # Exponents 0 and 31, counted up by one, are those without a middle bit.
        is_rare = ((bits[chunk] + np.int16(0x0400)) & np.int16(0x7800)) == 0
        _cast_rare(source[chunk], result[chunk], is_rare)
    return result.reshape(array.shape)


def float32_to_float16(array: np.ndarray) -> np.ndarray:
    """Returns float32 values that float16 holds exactly as float16."""
    source = np.ascontiguousarray(array).reshape(-1)
    result = np.empty(source.shape, np.float16)
    bits, narrow = source.view(np.uint32), result.view(np.uint16)
    for begin in range(0, source.size, _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        magnitude = bits[chunk] & ~_SIGN
        magnitude -= _SMALLEST_NORMAL  # what lies below wraps round to large numbers
        is_rare = magnitude >= _EXPONENTS
        magnitude >>= _EXTRA_BITS
        magnitude += np.uint32(1 << 10)
        sign = bits[chunk] >> np.uint32(16)
        sign &= np.uint32(0x8000)
        magnitude |= sign
        narrow[chunk] = magnitude
        _cast_rare(source[chunk], result[chunk], is_rare)
    return result.reshape(array.shape)


def round_float16(array: np.ndarray) -> np.ndarray:
    """Rounds float32 to the nearest float16, ties to even; the result is carried in float32.

    Adding 1.5 * 2**(e + 13), where e is the exponent of the value or of the smallest normal float16, rounds to
    a float16's last place, as the sum has just the bits above it; subtracting it again is exact.
    """
    array = np.asarray(array, np.float32, order="C")
    bits = array.view(np.uint32)
    magic_bits = bits & _EXPONENT
    if array.ndim == 0 or magic_bits.max(initial=0) >= _LARGEST_EXPONENT:  # may overflow, infinity or NaN
        with np.errstate(over="ignore"):  # overflow to infinity is what the hardware does
            return array.astype(np.float16).astype(np.float32)
    np.maximum(magic_bits, _SMALLEST_NORMAL, out=magic_bits)
    magic_bits += _TO_LAST_PLACE
    magic = magic_bits.view(np.float32)
    result = array + magic
    result -= magic
    result_bits = result.view(np.uint32)
    result_bits |= bits & _SIGN  # a negative value that rounds to zero stays negative
    return result


def _cast_rare(source: np.ndarray, result: np.ndarray, is_rare: np.ndarray) -> None:
    """Casts the elements of `source` that are rare into those of `result`."""
    (rare,) = np.nonzero(is_rare)
    if len(rare) * _RARE_PART > len(result):
        result[...] = source
    elif len(rare):
        result[rare] = source[rare]
