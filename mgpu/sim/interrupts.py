"""Ctrl-C for simulations that do not run on the main thread.

Python runs signal handlers on the main thread alone. A simulation inside `jax.jit` may run on a thread of JAX's, while
the main thread waits for it in compiled code: it would go on although the user has given up. So a simulation asks, now
and then, a file descriptor that Python writes to at every signal, whatever the main thread is doing (`signal`,
`set_wakeup_fd`). An event loop that needs that descriptor for itself keeps it; then such a simulation ends by itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable


class Interrupts:
    """Counts the times that the user has pressed Ctrl-C. One for the process, as signals are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: tuple[int, int] | None = None  # read end, write end
        self._count = 0

    def listen(self) -> None:
        """Begins to hear signals, unless somebody else does. Does nothing on a thread other than the main one."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
        own = self._pipe[1]
        with contextlib.suppress(ValueError):  # a subinterpreter has no signals
            before = signal.set_wakeup_fd(own, warn_on_full_buffer=False)
            if before not in (-1, own):
                signal.set_wakeup_fd(before)

    def count(self) -> int:
        """Returns how many Ctrl-C have been heard of; those that the program handles itself do not count."""
        if self._pipe is None:
            return 0
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                while heard := os.read(self._pipe[0], 256):
                    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                        self._count += heard.count(signal.SIGINT)
            return self._count

    def check(self) -> Callable[[], None] | None:
        """Returns a function that raises KeyboardInterrupt if Ctrl-C has been pressed since; None on the main thread.

        There Python raises it by itself.
        """
        if threading.current_thread() is threading.main_thread():
            return None
        before = self.count()

        def raise_if_pressed() -> None:
            if self.count() != before:
                raise KeyboardInterrupt

        return raise_if_pressed


interrupts = Interrupts()
"""Those of the process."""
