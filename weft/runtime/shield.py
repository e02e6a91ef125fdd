"""Ctrl-C while a library of C++ replaces the handlers of signals.

NVRTC's front end does so during the first compilation of a process (seen with 13.0): it ignores SIGINT, which discards one
that is pending, then for 7 to 13 ms installs a handler that ends the process with status 4, for SIGTERM too; and restores
the previous handlers with SA_RESTART, after which Ctrl-C no longer ends a wait for a lock.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

_LONGEST_WAIT_S = 0.1
"""The main thread checks this often whether the call has ended, in case the wake-up signal merged with one of its kind."""


def shielded(call: Callable[[], object]) -> None:
    """Run a short call on a helper thread while the main thread collects SIGINT and SIGTERM; they are raised again after it,
    and so is a SIGURG that is not the helper's, which wakes the main thread.

    Linux delivers a signal of the process to its main thread if that waits in `sigtimedwait`, whatever the handler is. A signal
    that is still pending when NVRTC ignores it is lost all the same. Called from another thread, or where `sigtimedwait` does
    not exist, the call runs unprotected.
    """
    if not hasattr(signal, "sigtimedwait") or threading.current_thread() is not threading.main_thread():
        call()
        return
    answered, end = {signal.SIGINT, signal.SIGTERM}, signal.SIGURG
    main, taken, ready, ended = threading.get_ident(), set[int](), threading.Lock(), threading.Event()

    def run() -> None:
        ready.acquire()  # then this thread needs the GIL, which the main thread holds until it waits for signals
        try:
            call()
        finally:
            ended.set()
            signal.pthread_kill(main, end)

    thread = threading.Thread(target=run, name="weft-shielded")
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    ready.acquire()
    try:
        # Changing the mask runs the handler of a signal that came before, which may raise.
        signal.pthread_sigmask(signal.SIG_BLOCK, answered | {end})
        thread.start()
        ready.release()
        # A signal that arrives outside of these waits stays pending or goes to another thread, such as one of NumPy's; while
        # NVRTC ignores signals, both discard it.
        while True:
            found = signal.sigtimedwait(answered | {end}, _LONGEST_WAIT_S)
            if ended.is_set() and (found is None or found.si_signo == end):
                break
            if found:
                taken.add(found.si_signo)
    finally:
        if thread.ident is not None:
            thread.join()
        for number in answered:
            if callable(handler := signal.getsignal(number)):
                signal.signal(number, handler)  # installed anew, it ends waits
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number in taken:
        signal.raise_signal(number)
