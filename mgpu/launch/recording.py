"""What the environment says about recording, applied to a kernel's compiler parameters."""

from __future__ import annotations

import dataclasses

from mgpu import environment
from mgpu.params import CompilerParams


def with_environment(params: CompilerParams) -> CompilerParams:
    """Returns a kernel's parameters with the recording that MGPU_PROFILE_DIR and its companions ask for.

    Raises:
      ParamsError: one of them has another form than `mgpu.environment` describes.
    """
    space, directory = environment.recording(params.profile_space, params.profile_dir)
    window = environment.profile_window(params.profile_window)
    return dataclasses.replace(params, profile_space=space, profile_dir=directory, profile_window=window)
