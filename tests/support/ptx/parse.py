"""PTX text -> the instructions of its kernel, with names resolved: registers of inner scopes, labels, symbols.

Statements end at `;`, scopes are braces, and both may stand anywhere on a line, as in inline assembly. See PTX ISA 8.7,
section 4 (syntax) and 6 (operands).
"""

from __future__ import annotations

import dataclasses
import re
import struct


class PtxError(AssertionError):
    """The text is not PTX that this machine knows, or the kernel did what no GPU allows."""


@dataclasses.dataclass(frozen=True)
class Register:
    """A register, under a name that is unique in the kernel; `negated` for `!p`."""

    name: str
    negated: bool = False


@dataclasses.dataclass(frozen=True)
class Immediate:
    """The bits of a constant; integers are taken modulo the instruction's width, floats are those of their width."""

    bits: int


@dataclasses.dataclass(frozen=True)
class Special:
    """A special register such as `%tid.x`."""

    name: str


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A variable or parameter, standing for its address; or a label."""

    name: str


@dataclasses.dataclass(frozen=True)
class Vector:
    """Operands in braces."""

    items: tuple[Operand, ...]


@dataclasses.dataclass(frozen=True)
class Address:
    """Operands in brackets: a base with an offset in bytes, and for tensors the coordinates."""

    base: Operand
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two destinations, `a|b`; `_` is none."""

    first: Operand
    second: Operand


Operand = Register | Immediate | Special | Symbol | Vector | Address | Pair


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction: the parts of its name, its operands, the predicate that guards it, its text."""

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    text: str
    target: int = -1
    """Of a branch: the index of the instruction that it goes to."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel: its parameters (name -> offset, size in bytes), instructions, and registers with their types."""

    name: str
    params: dict[str, tuple[int, int]]
    instructions: tuple[Instruction, ...]
    registers: dict[str, str]
    shared: tuple[str, ...]


_SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8}


class _Scope:
    def __init__(self, outer: _Scope | None, number: int) -> None:
        self.outer, self.number = outer, number
        self.registers: dict[str, str] = {}
        self.ranges: dict[str, int] = {}
        self.labels: dict[str, int] = {}

    def find(self, name: str, table: str) -> str | int | None:
        scope: _Scope | None = self
        while scope is not None:
            found = getattr(scope, table).get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None


def parse_kernel(text: str) -> Kernel:
    """Returns the one kernel of a PTX module."""
    head = re.search(r"\.entry\s+([\w$]+)\s*\((.*?)\)(.*?)\{", text, re.S)
    if head is None:
        raise PtxError("the text has no .entry")
    params = _parameters(head[2])
    reader = _Reader(params)
    reader.read(text[head.end() :])
    return Kernel(head[1], params, reader.finished(), reader.types, tuple(reader.shared))


def _parameters(text: str) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    end = 0
    for declaration in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"\.param\s+(.*?)\.([busf]\d+)\s(?:.*\s)?([\w$]+)(?:\[(\d+)\])?", declaration)
        if match is None:
            raise PtxError(f"parameter {declaration!r}")
        align = re.search(r"\.align\s+(\d+)", match[1])
        size = _SIZES[match[2]] * int(match[4] or 1)
        step = max(_SIZES[match[2]], int(align[1]) if align else 1)
        begin = -(-end // step) * step
        found[match[3]] = (begin, size)
        end = begin + size
    return found


class _Reader:
    """Reads statements; operands are resolved as they are read, branches at the end."""

    def __init__(self, params: dict[str, tuple[int, int]]) -> None:
        self._params = params
        self._scope = _Scope(None, 0)
        self._scopes = 1
        self._found: list[tuple[Instruction, _Scope]] = []
        self.types: dict[str, str] = {}
        self.shared: list[str] = []

    def read(self, text: str) -> None:
        text = re.sub(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file|section|pragma)\b[^\n]*$", "", text, flags=re.S | re.M)
        statement, depth = "", 1
        for position, char in enumerate(text):
            if char == "{" and not statement.strip():
                self._scope, self._scopes = _Scope(self._scope, self._scopes), self._scopes + 1
                depth += 1
            elif char == "}" and not statement.strip():
                depth -= 1
                if not depth:
                    return
                assert self._scope.outer is not None
                self._scope = self._scope.outer
            elif char == ";":
                self._statement(" ".join(statement.split()))
                statement = ""
            elif char == ":" and re.fullmatch(r"\s*[\w$]+", statement) and text[position + 1] != ":":
                self._scope.labels[statement.strip()] = len(self._found)
                statement = ""
            else:
                statement += char
        raise PtxError("the kernel has no closing brace")

    def finished(self) -> tuple[Instruction, ...]:
        made = []
        for instruction, scope in self._found:
            target = -1
            if instruction.parts[0] == "bra":
                (label,) = instruction.operands
                assert isinstance(label, Symbol)
                found = scope.find(label.name, "labels")
                if found is None:
                    raise PtxError(f"no label {label.name}: {instruction.text}")
                target = int(found)
            made.append(dataclasses.replace(instruction, target=target))
        return tuple(made)

    def _statement(self, text: str) -> None:
        if not text:
            return
        if text.startswith(".reg"):
            kind, _, names = text.removeprefix(".reg").strip().removeprefix(".").partition(" ")
            for name in names.split(","):
                self._declare(name.strip(), kind)
            return
        if text.startswith((".shared", ".extern .shared")):
            self.shared.append(re.findall(r"[\w$]+", text.partition("[")[0])[-1])
            return
        if text.startswith("."):
            raise PtxError(f"declaration {text!r} is not known")
        guard = re.match(r"@(!?)([%\w$]+)\s+", text)
        predicate = None
        if guard:
            predicate = dataclasses.replace(self._register(guard[2]), negated=bool(guard[1]))
            text = text[guard.end() :]
        name, _, rest = text.partition(" ")
        is_branch = name.partition(".")[0] == "bra"
        operands = (Symbol(rest.strip()),) if is_branch else tuple(map(self._operand, _split(rest)))
        self._found.append((Instruction(tuple(name.split(".")), operands, predicate, text), self._scope))

    def _declare(self, name: str, kind: str) -> None:
        many = re.fullmatch(r"(.+)<(\d+)>", name)
        names = [f"{many[1]}{number}" for number in range(int(many[2]))] if many else [name]
        for each in names:
            if each in self._scope.registers:
                raise PtxError(f"register {each} is declared twice in one scope")
            unique = f"{each}@{self._scope.number}" if self._scope.number else each
            self._scope.registers[each] = unique
            self.types[unique] = kind

    def _register(self, name: str) -> Register:
        found = self._scope.find(name, "registers")
        if found is None:
            raise PtxError(f"register {name} is not declared")
        return Register(str(found))

    def _operand(self, text: str) -> Operand:
        if text.startswith("{"):
            return Vector(tuple(map(self._operand, _split(text[1:-1]))))
        if text.startswith("["):
            base, *coordinates = _split(text[1:-1])
            name, _, offset = base.partition("+")
            more = tuple(map(self._operand, _split(coordinates[0].strip("{}")))) if coordinates else ()
            return Address(self._operand(name.strip()), int(offset or 0), more)
        if "|" in text:
            first, _, second = text.partition("|")
            return Pair(self._operand(first), self._operand(second))
        if text.startswith("!"):
            return dataclasses.replace(self._register(text[1:].strip()), negated=True)
        found = self._scope.find(text, "registers")
        if found is not None:
            return Register(str(found))
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", text):
            return Immediate(int(text[2:], 16))
        if re.fullmatch(r"-?(?:0x[0-9a-fA-F]+|\d+)U?", text):
            return Immediate(int(text.rstrip("U"), 0))
        if re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?", text):
            return Immediate(struct.unpack("<I", struct.pack("<f", float(text)))[0])
        if text.startswith("%"):
            return Special(text)
        base, plus, offset = text.partition("+")
        if plus:
            return Address(self._operand(base), int(offset))  # the address itself: `mov d, symbol+8`
        return Symbol(text)


def _split(text: str) -> list[str]:
    """Splits at commas outside braces and brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "{[") - (char in "}]")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]
