"""Ctrl-C during a simulation that JAX runs as a callback: out of it come JAX's own errors only.

JAX turns whatever a callback raises into a `JaxRuntimeError`, an ordinary exception, and on a thread of its own it may
drop it, because nobody asks for the result any more. The user is to see a KeyboardInterrupt and how far it came.

So the main thread is interrupted once more, at the moment when JAX lets go of the exception: after the callback, where
Python would raise here and now, and before JAX gives its own error to the caller. Python then raises
KeyboardInterrupt at the first call or loop that it comes to, be it in JAX's own frames or in the caller's handler. (If
it comes to none, since nobody catches the error, the error's text says the same.)
"""

from __future__ import annotations

import _thread
import logging
import signal
import threading
import weakref


class _Stopped(KeyboardInterrupt):
    """What a callback raises. It refers to itself weakly, to tell of its end."""

    end: _End


_Stopped.__qualname__ = _Stopped.__name__ = KeyboardInterrupt.__name__  # JAX's error quotes it


class _End(weakref.ref[_Stopped]):
    """Is called with itself, which `interrupt_main` takes for the number of a signal."""

    __slots__ = ()

    def __index__(self) -> int:
        return signal.SIGINT


def stopped(text: str) -> KeyboardInterrupt:
    """Returns what a callback is to raise, and sees to it that the main thread is interrupted once JAX has taken it.

    It must not be raised while another exception is handled: the frames which that holds would run code when it ends.

    Args:
      text: says how far the simulation came.
    """
    logging.getLogger(__name__).warning("%s", text)
    error = _Stopped(text)
    if threading.current_thread() is threading.main_thread():
        # In C from end to end: Python code would be interrupted itself.
        error.end = _End(error, _thread.interrupt_main)  # pyright: ignore[reportArgumentType]
    return error
