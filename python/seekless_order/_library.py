"""The C library, found and described to ctypes. ``seekless_order.h`` says what its functions do."""

from __future__ import annotations

import ctypes
import os
from typing import List, Optional

ABI = 1
NAME = "libseekless_order.so"

END, ITEM, FAILURE = 0, 1, 2
FULL = 1
E_USAGE, E_FORKED = -1, -2
OPTIONS = {"window": 1, "range_max": 2, "by": 3, "folders": 4, "batch": 5, "daemon": 6}
BY = {"address": 0, "inode": 1, "listed": 2}
HOW = ("address", "inode", "as listed")

_HOW_TO_GET_IT = (
    "it is in the packages of Seekless, and `cargo build --release -p seekless-order-c` makes it in the "
    "source; SEEKLESS_ORDER_LIBRARY may name it"
)


class LibraryNotFound(OSError):
    """The C library is not here, or is not the one that this package is for."""


class Item(ctypes.Structure):
    """``struct seekless_order_item``."""

    _fields_ = [
        ("path", ctypes.c_char_p),
        ("reason", ctypes.c_char_p),
        ("offset", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("how", ctypes.c_int),
        ("last", ctypes.c_int),
    ]


_loaded: Optional[ctypes.CDLL] = None


def _places() -> List[str]:
    named = os.environ.get("SEEKLESS_ORDER_LIBRARY")
    if named:
        return [named]
    # Not at the top: it takes as long to load as all else here, and is needed only where no name is given.
    import ctypes.util

    bundled = os.path.join(os.path.dirname(__file__), NAME)
    installed = [os.path.join(prefix, "lib", NAME) for prefix in ("/usr/local", "/usr")]
    found = ctypes.util.find_library("seekless_order")
    return [path for path in [bundled, *installed] if os.path.exists(path)] + ([found] if found else [])


def library() -> ctypes.CDLL:
    """The library.

    Raises LibraryNotFound, whose message is one line.
    """
    global _loaded
    if _loaded is not None:
        return _loaded
    why = "not found"
    for place in _places():
        try:
            lib = ctypes.CDLL(place)
            abi = lib.seekless_order_abi()
        except (OSError, AttributeError) as error:
            why = " ".join(str(error).split())
            continue
        if abi != ABI:
            why = f"{place} has version {abi} of the interface, not {ABI}"
            continue
        _declare(lib)
        _loaded = lib
        return lib
    raise LibraryNotFound(f"{NAME}: {why}; {_HOW_TO_GET_IT}")


def _declare(lib: ctypes.CDLL) -> None:
    lib.seekless_order_new.restype = ctypes.c_void_p
    lib.seekless_order_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    lib.seekless_order_add.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.seekless_order_next.argtypes = [ctypes.c_void_p, ctypes.POINTER(Item)]
    lib.seekless_order_how.argtypes = [ctypes.c_int]
    lib.seekless_order_how.restype = ctypes.c_char_p
    lib.seekless_order_read_by.argtypes = [ctypes.c_void_p]
    lib.seekless_order_read_by.restype = ctypes.c_char_p
    lib.seekless_order_free.argtypes = [ctypes.c_void_p]
    lib.seekless_order_free.restype = None
