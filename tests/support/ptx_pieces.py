"""Runs the pieces of PTX that the recorder is made of, for every thread of some CTAs, in lock step.

Whole compiled kernels are run by `support.ptx`, which needs the compiler's packages; this needs none.

It knows the instructions that the recorder uses and nothing else, from their description in the PTX ISA. Threads of a
CTA run one after another within a piece; what they share is memory. Registers declared outside braces persist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

_WIDTH = {"pred": 1, "b32": 32, "u32": 32, "s32": 32, "b64": 64, "u64": 64}


class Memory:
    """Bytes at addresses from `base` on; anything outside is an error."""

    def __init__(self, base: int, size: int) -> None:
        self.base = base
        self.bytes = np.zeros(size, np.uint8)

    def _at(self, address: int, count: int, width: int) -> slice:
        start, size = address - self.base, count * width // 8
        assert start % size == 0, f"misaligned access of {size} bytes at {address:#x}"
        assert 0 <= start <= len(self.bytes) - size, f"access outside memory at {address:#x}"
        return slice(start, start + size)

    def store(self, address: int, values: Sequence[int], width: int) -> None:
        """Writes values of `width` bits."""
        data = b"".join(int(value).to_bytes(width // 8, "little") for value in values)
        self.bytes[self._at(address, len(values), width)] = np.frombuffer(data, np.uint8)

    def load(self, address: int, count: int, width: int) -> list[int]:
        """Reads values of `width` bits."""
        data = self.bytes[self._at(address, count, width)].tobytes()
        size = width // 8
        return [int.from_bytes(data[i * size : (i + 1) * size], "little") for i in range(count)]


class Thread:
    """One thread: its number in the CTA, and the registers that persist between pieces."""

    def __init__(self, tid: int, special: Callable[[str], int], memories: Mapping[str, Memory]) -> None:
        self._special = {"%tid.x": lambda: tid}
        self._other = special
        self._memories = memories
        self._kept: dict[str, int] = {}

    def run(self, text: str, operands: Sequence[int]) -> None:
        """Executes a piece of PTX whose operands `$0`, `$1`... have these values."""
        registers = dict(self._kept)
        names: set[str] = set()
        depth = 0
        lines = text.splitlines()
        labels = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
        position = 0
        while position < len(lines):
            line = lines[position]
            position += 1
            if line in "{}":
                depth += 1 if line == "{" else -1
            elif line.startswith(".reg"):
                declared = re.findall(r"\w+", line.split(maxsplit=2)[2])
                assert not names & set(declared), f"{declared} declared twice"
                names |= set(declared)
                registers |= dict.fromkeys(declared, 0)
                if depth == 0:
                    self._kept |= dict.fromkeys(declared, 0)
            elif not line.endswith(":"):
                target = self._execute(line, registers, operands)
                position = labels[target] if target else position
        self._kept = {name: registers[name] for name in self._kept}

    def _execute(self, line: str, registers: dict[str, int], operands: Sequence[int]) -> str | None:
        """Executes one instruction; returns the label that it branches to."""
        predicate = re.match(r"@(!?)(\w+) ", line)
        if predicate:
            line = line[predicate.end() :]
        taken = predicate is None or bool(registers[predicate[2]]) != bool(predicate[1])
        name, _, rest = line.rstrip(";").partition(" ")
        if not taken or name == "bar.warp.sync":
            return None
        if name == "bra":
            return rest
        arguments = [a.strip(" {}") for a in re.split(r",", rest)]

        def value(argument: str) -> int:
            if argument.startswith("$"):
                return operands[int(argument[1:])]
            if argument.startswith("%"):
                return self._special[argument]() if argument in self._special else self._other(argument)
            return registers[argument] if argument in registers else int(argument)

        parts = name.split(".")
        width = _WIDTH[parts[-1]]
        if parts[0] in ("st", "ld"):
            self._access(parts, width, rest, registers, value)
            return None
        inputs = [value(argument) for argument in arguments[1:]]
        if parts[-1] == "s32":
            inputs = [(number + (1 << 31)) % (1 << 32) - (1 << 31) for number in inputs]
        assert arguments[0] in registers, f"{line}: {arguments[0]} is not declared"
        wide = 64 if "wide" in parts else width
        registers[arguments[0]] = int(_OPERATIONS[".".join(parts[:-1])](*inputs)) % (1 << wide)
        return None

    def _access(self, parts: list[str], width: int, rest: str, registers: dict[str, int], value: Callable) -> None:
        address = re.search(r"\[(\w+)(?:\+(\d+))?\]", rest)
        assert address is not None
        where = registers[address[1]] + int(address[2] or 0)
        others = [name.strip(" {},") for name in re.sub(r"\[.*?\]", "", rest).split(",")]
        others = [name for name in others if name]
        memory = self._memories[parts[1]]
        assert len(others) == (2 if "v2" in parts else 1)
        if parts[0] == "st":
            memory.store(where, [value(name) for name in others], width)
        else:
            registers.update(zip(others, memory.load(where, len(others), width), strict=True))


_OPERATIONS: dict[str, Callable[..., int]] = {
    "mov": lambda a: a,
    "add": lambda a, b: a + b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "min": min,
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.wide": lambda a, b, c: a * b + c,
    "setp.eq": lambda a, b: a == b,
    "setp.ge": lambda a, b: a >= b,
    "setp.lt": lambda a, b: a < b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "selp": lambda a, b, choose: a if choose else b,
    "cvt.u64": lambda a: a,
}
