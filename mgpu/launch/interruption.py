"""Ctrl-C during a simulation that JAX runs as a callback: out of it come JAX's own errors only.

JAX turns whatever a callback raises into a `JaxRuntimeError`, an ordinary exception, and on a thread of its own it may
drop it, because nobody asks for the result any more. The user is to see a KeyboardInterrupt and how far it came.
"""

from __future__ import annotations

import _thread
import logging
import sys
import threading
import time
from types import FrameType


def pass_on(interrupt: KeyboardInterrupt) -> None:
    """Says why a callback ends, and sees to it that the main thread is interrupted once it has left the callback.

    Args:
      interrupt: ends the simulation; its text says how far it came.
    """
    logging.getLogger(__name__).warning("%s", interrupt)
    if threading.current_thread() is threading.main_thread():
        # Python would raise here and now whatever interrupts the main thread before it has left.
        threading.Thread(target=_interrupt_after, args=(sys._getframe(1),), daemon=True).start()


def _interrupt_after(callback: FrameType) -> None:
    """Interrupts the main thread when a frame is not on its stack any more: JAX takes less than a millisecond."""
    while _is_running(callback):
        time.sleep(0)  # lets go of the interpreter
    _thread.interrupt_main()


def _is_running(wanted: FrameType) -> bool:
    """True if a frame is on the main thread's stack."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame is not wanted:
        frame = frame.f_back
    return frame is wanted
