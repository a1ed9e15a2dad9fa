"""Runs a script again on the simulator with something changed, in a process of its own, and reads what it recorded."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mgpu import environment
from mgpu.errors import CaptureError, ParamsError
from profiler.store import newest_launch, open_profile

_ARGS = "args:"


@dataclasses.dataclass(frozen=True)
class Trial:
    """One changed run.

    Attributes:
      name: for people.
      numbers: device numbers to replace.
      arguments: what the script gets after its usual arguments, so that the last one wins.
    """

    name: str
    numbers: Mapping[str, float | str] = dataclasses.field(default_factory=dict)
    arguments: tuple[str, ...] = ()


# One unit at a time as good as the model lets it be: what is there to gain from this unit at most?
DEFAULT_TRIALS = (
    Trial("barrier hops at once", {"mbarrier_hop_cycles": 0.0}),
    Trial("TMA latency as short as 1 cycle", {"tma_latency_l2_cycles": 1.0, "tma_latency_dram_cycles": 1.0}),
    Trial("L2 and HBM without limit", {"hbm_bandwidth": 1e18, "l2_bandwidth": 1e18, "l2_shared_bandwidth": 1e18}),
    Trial("TMA issue at once", {"tma_issue_cycles": 0.0}),
    Trial("recording at once", {"record_event_cycles": 0.0}),
    Trial("CTA dispatch and setup at once", {"cta_dispatch_ns": 0.0, "cta_setup_ns": 0.0, "launch_ramp_ns": 0.0}),
)


def parse_trial(text: str) -> Trial:
    """Reads a trial: `NAME=VALUE,...` replaces device numbers, `args: --stages 4` adds arguments of the script.

    Raises:
      ParamsError: it has neither form.
    """
    stripped = text.strip()
    if stripped.startswith(_ARGS):
        return Trial(stripped, arguments=tuple(stripped.removeprefix(_ARGS).split()))
    numbers = environment.parse_numbers(stripped)
    if not numbers:
        raise ParamsError(f"--try {text!r}: expected NAME=VALUE, or 'args: ...' with arguments of the script.")
    return Trial(stripped, numbers)


def run_script(
    script: Path,
    arguments: Sequence[str],
    *,
    device: str = "",
    numbers: Mapping[str, float | str] | None = None,
    compute_scale: str = "",
    profile_dir: Path | None = None,
    profile_space: int = 0,
    profile_window: str = "",
    profile_keep: int = 0,
    quiet: bool = False,
) -> None:
    """Runs a Python script in a process of its own, with what the environment can tell it (`mgpu.environment`).

    Args:
      script: the file.
      arguments: its arguments.
      device: device to simulate, "" for the script's own choice.
      numbers: device numbers to replace.
      compute_scale: factors on the time of warpgroups' own work, as `environment.parse_compute_scale` reads them.
      profile_dir: where its kernels are recorded, None for where the script says.
      profile_space: events per track of kernels that ask for none.
      profile_window: the part of its kernels that is recorded (`mgpu.profile_window`), "" for the script's own choice.
      profile_keep: how many launches of each kernel are kept, the newest; 0 for the script's own choice.
      quiet: keep its output, and show it only if it fails.

    Raises:
      ParamsError: there is no such script, or it fails.
    """
    if not script.is_file():
        raise ParamsError(f"{script}: no such script. Give a Python file that calls the kernel.")
    settings = dict(os.environ)
    if device:
        settings[environment.DEVICE] = device
    if numbers:
        settings[environment.NUMBERS] = environment.format_numbers(numbers)
    if compute_scale:
        settings[environment.COMPUTE_SCALE] = compute_scale
    if profile_dir is not None:
        settings[environment.PROFILE_DIR] = str(profile_dir)
    if profile_space:
        settings[environment.PROFILE_SPACE] = str(profile_space)
    if profile_window:
        settings[environment.PROFILE_WINDOW] = profile_window
    if profile_keep:
        settings[environment.PROFILE_KEEP] = str(profile_keep)
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, env=settings, capture_output=quiet, text=True, check=False)
    if done.returncode:
        said = f"\n{done.stderr.strip()}" if quiet else ""
        raise ParamsError(f"{script} ended with status {done.returncode}.{said}")


def resimulate(script: Path, arguments: Sequence[str], trial: Trial, device: str = "") -> int:
    """Runs a script with a change and returns the cycles of the last kernel that it launched.

    Raises:
      ParamsError: the script fails.
      CaptureError: it launches no kernel.
    """
    with tempfile.TemporaryDirectory(prefix="mgpu-whatif-") as folder:
        run_script(
            script,
            [*arguments, *trial.arguments],
            device=device,
            numbers=trial.numbers,
            profile_dir=Path(folder),
            quiet=True,
        )
        try:
            launches = open_profile(folder)
        except CaptureError:
            raise CaptureError(f"{script}: launched no kernel of mgpu, so there is nothing to compare.") from None
        return newest_launch(launches).load_trace().end
