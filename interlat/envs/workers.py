"""Worker processes that do not outlive the one that started them."""

import multiprocessing
import os
import signal
import threading


def end_with_parent() -> None:
    """Let this worker end when its parent does, even by SIGKILL, and leave Ctrl-C to the parent.

    A pool's worker waits on a queue of which it holds both ends, and would wait for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
