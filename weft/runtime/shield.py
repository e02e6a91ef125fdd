"""Ctrl-C while a library of C++ replaces the handlers of signals.

NVRTC's front end does so during the first compilation of a process: it ignores SIGINT, which discards one that is pending, then
installs a handler that ends the process, for SIGTERM too; and gives back what it found with SA_RESTART, after which Ctrl-C no
longer ends a wait for a lock.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

_TURN_S = 0.001


def shielded(call: Callable[[], object]) -> None:
    """Run a short call in a thread of its own, while the main thread takes SIGINT and SIGTERM; they are answered after it.

    The kernel gives a signal to the main thread first where that waits for it, whatever its handler is. From another thread,
    and where no thread can wait for a signal, nothing is taken.
    """
    if not hasattr(signal, "sigtimedwait") or threading.current_thread() is not threading.main_thread():
        call()
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    thread, taken = threading.Thread(target=call, name="weft-shielded"), set[int]()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        thread.start()
        while thread.is_alive():
            if found := signal.sigtimedwait(signals, _TURN_S):
                taken.add(found.si_signo)
    finally:
        thread.join()
        for number in signals:
            if callable(handler := signal.getsignal(number)):
                signal.signal(number, handler)  # installed anew, it ends waits
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number in taken:
        signal.raise_signal(number)
