"""TMA copies: loads (also multicast over a cluster), stores (also reductions), prefetches, and waiting for stores."""

from __future__ import annotations

import dataclasses
from typing import Any

from mgpu.frontend.regions import Path
from mgpu.lang.primitive import View
from mgpu.sim.compile.boxes import BoxText, box_of, reduce_box, select_box
from mgpu.sim.compile.context import Context, Rule
from mgpu.sim.compile.race_hooks import note, note_global_load, note_load, note_shares, note_store
from mgpu.sim.compile.recording import operands_of, record, site_of
from mgpu.sim.compile.refs import Part, Selection, select
from mgpu.sim.compile.synchronisation import barrier_of
from mgpu.sites import Edge

_FILL = {"ZEROS": "zero_filled", "UNDEFINED": "undefined_filled", "PROMISE_IN_BOUNDS": "refuse_outside"}


def _copy_gmem_to_smem(context: Context, equation: Any, path: Path) -> None:
    emitter, params = context.emitter, equation.params
    src, dst, barrier_view, predicate = operands_of(equation)
    box = select_box(context, src)
    target = select(context, dst, has_values=context.options.numerics)
    barrier, slot = barrier_of(context, barrier_view)
    site = site_of(context, path)
    record(context, site, Edge.BEGIN, slot)
    emitter.spend(cycles=context.device.tma_issue_cycles)
    emitter.flush()
    fill = _FILL[params["oob_mode"]]
    if not params["collective_axes"]:
        source = box.source(fill)
        place = target.place
        if not context.options.numerics:
            place, source = "NO_VALUES, ...", "NO_VALUES"
        call = f"wg.load({place}, {source}, {box.box}, {barrier.base}[{slot}], {slot}, {box.num_bytes}, {site})"
        condition = "True" if predicate is None else context.expression(predicate)
        note_load(context, target, box, f"{barrier.base}[{slot}]", predicate="" if predicate is None else condition)
        emitter.line(call if predicate is None else f"if {condition}: {call}")
    else:
        assert predicate is None
        _collective_load(context, equation, box, target, (barrier, slot), fill, site)
    record(context, site, Edge.END, slot)


def _collective_load(
    context: Context,
    equation: Any,
    box: BoxText,
    target: Selection,
    barrier: tuple[Selection, str],
    fill: str,
    site: int,
) -> None:
    emitter, params = context.emitter, equation.params
    axes = params["collective_axes"]
    count = params["group_size"]
    partition, axis = params["partition"], params["axis"]
    constant = emitter.constant(axes)
    barriers, slot = _at_peers(context, constant, barrier[0], f"{barrier[0].storage.name}[{barrier[1]}]"), barrier[1]
    position = emitter.assign(f"cta.position({constant})", "position")
    if partition == "replicated":
        part, piece, targets = box, target, f"[{target.text}]"
    else:
        part, piece = _slice(context, box, target, count, axis, position, is_multicast=partition is None)
        targets = f"[{target.text}]" if partition else _at_peers(context, constant, target, piece.text)
    source = part.source(fill)
    own = f"{barrier[0].base}[{slot}]"
    if partition is None:
        storage = target.storage
        buffers = f"cta.peer_buffers({constant}, {storage.allocation.number}, {storage.entry} - 1)"
        note_shares(context, piece, buffers, barriers, own)
        note_global_load(context, part, own)
    else:
        note_load(context, target, part, f"{barriers}[0]", share=True)
        note(context, "arrive", own, condition=f"{position} == 0")
    if not context.options.numerics:
        source, targets = "NO_VALUES", f"[NO_VALUES] * {count if partition is None else 1}"
    destination = f"{constant}, {targets}, {source}, {part.box}, {barriers}, {slot}, {part.num_bytes}, {site}"
    emitter.line(f"wg.load_collective({destination}, {partition is not None})")


def _at_peers(context: Context, axes: str, selection: Selection, text: str) -> str:
    """Returns the expression of a list: a selection of one's own buffer, applied to that of each CTA of the group."""
    storage = selection.storage
    if selection.peer or not storage.entry:
        raise context.unsupported(
            f"a collective copy to {storage.allocation.name} of another CTA", "Give one's own buffer and barrier."
        )
    return f"[{text} for {storage.name} in cta.peer_buffers({axes}, {storage.allocation.number}, {storage.entry} - 1)]"


def _shown_shape(selection: Selection) -> tuple[int, ...]:
    sizes = [selection.parts[axis].size for axis in selection.order]
    return tuple(size for size in sizes if size is not None)


def _slice(
    context: Context,
    box: BoxText,
    target: Selection,
    count: int,
    axis: int | None,
    position: str,
    *,
    is_multicast: bool,
) -> tuple[BoxText, Selection]:
    """Cuts box and target into `count` slices along one dimension and takes the one at `position`.

    Returns:
      The slice of the box; the slice of the target if each slice goes to all CTAs, else the whole target.
    """
    shape = _shown_shape(box.selection)
    if axis is None:
        axis = next((i for i, size in enumerate(shape) if size % count == 0), None)
        if axis is None:
            raise context.unsupported(
                f"a multicast copy of {list(shape)} over {count} CTAs: no dimension divides by {count}",
                "Change the tile.",
            )
    length = shape[axis] // count
    selection = _take(context, box.selection, axis, position, length)
    piece = _take(context, target, axis, position, length) if is_multicast else target
    return box_of(context, selection), piece


def _take(context: Context, selection: Selection, axis: int, position: str, length: int) -> Selection:
    kept = selection.order[axis]
    part = selection.parts[kept]
    start = context.emitter.assign(f"{part.start} + {position} * {length * part.stride}", "i")
    parts = list(selection.parts)
    parts[kept] = Part(start, length, part.stride)
    return dataclasses.replace(selection, parts=tuple(parts))


def _async_prefetch(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    ref, predicate = operands_of(equation)
    box = select_box(context, ref)
    site = site_of(context, path)
    record(context, site, Edge.BEGIN)
    emitter.spend(cycles=context.device.tma_issue_cycles)
    emitter.flush()
    if equation.params["collective_axes"]:
        # Each CTA fetches a part; the boxes differ in time only, so the part's size is what counts.
        constant, count = emitter.constant(equation.params["collective_axes"]), equation.params["group_size"]
        position = emitter.assign(f"cta.position({constant})", "position")
        box, _ = _slice(context, box, box.selection, count, None, position, is_multicast=False)
    call = f"wg.prefetch({box.box}, {box.num_bytes}, {site})"
    emitter.line(call if predicate is None else f"if {context.expression(predicate)}: {call}")
    record(context, site, Edge.END)


def _copy_smem_to_gmem(context: Context, equation: Any, path: Path) -> None:
    emitter, params = context.emitter, equation.params
    src, dst, predicate = operands_of(equation)
    box = select_box(context, dst)
    source = select(context, src, has_values=context.options.numerics)
    site = site_of(context, path)
    record(context, site, Edge.BEGIN)
    emitter.spend(cycles=context.device.tma_issue_cycles)
    emitter.flush()
    # Arguments are bound now; the values are read when the engine reads them.
    write = "no_write"
    if context.options.numerics:
        write = _store_write(context, box, source.text, params["reduction_op"], dst)
    call = f"wg.store({write}, {box.box}, {box.num_bytes}, {params['commit_group']}, {site})"
    condition = "True" if predicate is None else context.expression(predicate)
    unless = "" if predicate is None else condition
    note_store(context, source, box, reduces=params["reduction_op"] is not None, predicate=unless)
    if params["commit_group"]:
        note(context, "close_group", condition=unless)
    emitter.line(call if predicate is None else f"if {condition}: {call}")
    record(context, site, Edge.END)


def _store_write(context: Context, box: BoxText, source: str, reduction_op: str | None, dst: View) -> str:
    selection = box.selection
    if any(part.gathers for part in selection.parts):
        raise context.unsupported("a TMA store to rows given by an array", "Store rows one by one.")
    if not selection.is_in_order:
        raise context.unsupported("a TMA store to a transposed GMEM ref", "Transpose the SMEM ref instead.")
    if reduction_op is None:
        clipped = f"partial(store_box, {selection.base}, {box.corner}, {box.sides}, {source})"
        if box.inside == "False":
            return clipped
        whole = f"partial(copyto, {selection.text}, {source}, casting='unsafe')"
        return whole if box.inside == "True" else f"({whole} if {box.inside} else {clipped})"
    combine = context.emitter.constant(reduce_box(reduction_op, dst.dtype))
    return f"partial({combine}, {selection.base}, {box.corner}, {box.sides}, {source})"


def _commit_group(context: Context, equation: Any, path: Path) -> None:
    context.emitter.flush()
    context.emitter.line("wg.commit_stores()")
    note(context, "close_group")


def _wait_smem_to_gmem(context: Context, equation: Any, path: Path) -> None:
    site = site_of(context, path)
    record(context, site, Edge.BEGIN)
    n, read_only = equation.params["n"], equation.params["wait_read_only"]
    # One cycle more than the data needs: who waited goes on after the write, not beside it.
    context.emitter.wait(f"wg.store_wait({n}, {read_only}, owed) + 1")
    note(context, "store_waited", n, read_only)
    record(context, site, Edge.END)


RULES: dict[str, Rule] = {
    "copy_gmem_to_smem": _copy_gmem_to_smem,
    "copy_smem_to_gmem": _copy_smem_to_gmem,
    "async_prefetch": _async_prefetch,
    "commit_smem_to_gmem_group": _commit_group,
    "wait_smem_to_gmem": _wait_smem_to_gmem,
}
