"""libapus for Python, by ctypes: what a loop needs. Copy it next to your program.

    with apus.Waiter(goal="p99=100us", name="my-loop") as waiter:
        waiter.watch(socket)
        while True:
            received = handle_all_packets(socket)
            waiter.wait(received)
"""
import ctypes
import os

ABI = 0
POLL, PAUSE, SLEEP, BLOCK = range(4)
STAMPED_REALTIME = 2


class Config(ctypes.Structure):
    """apus_config of apus.h."""
    _fields_ = [
        ("size", ctypes.c_size_t), ("mode", ctypes.c_char_p), ("goal", ctypes.c_char_p), ("peak_pps", ctypes.c_uint64),
        ("ring_descriptors", ctypes.c_uint32), ("wakes", ctypes.c_uint32), ("profile", ctypes.c_char_p),
        ("profile_path", ctypes.c_char_p), ("name", ctypes.c_char_p), ("app", ctypes.c_char_p), ("port", ctypes.c_char_p),
        ("telemetry_root", ctypes.c_char_p), ("longest_block_ns", ctypes.c_uint64), ("worker", ctypes.c_uint32),
        ("burst", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
    ]


class Queue(ctypes.Structure):
    """apus_queue of apus.h."""
    _fields_ = [
        ("first_ns", ctypes.c_uint64), ("last_ns", ctypes.c_uint64), ("picked_up_ns", ctypes.c_uint64),
        ("received", ctypes.c_uint32), ("fill", ctypes.c_uint32), ("stamped", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Done(ctypes.Structure):
    """apus_done of apus.h."""
    _fields_ = [
        ("began_ns", ctypes.c_uint64), ("ended_ns", ctypes.c_uint64), ("until_ns", ctypes.c_uint64),
        ("kind", ctypes.c_uint32), ("reason", ctypes.c_uint32), ("woken", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
    ]


class Error(Exception):
    """What a call failed of."""


_library = ctypes.CDLL(os.environ.get("LIBAPUS", "libapus.so.0"))
_library.apus_error.restype = ctypes.c_char_p
_library.apus_waiter_new.argtypes = [ctypes.POINTER(Config), ctypes.POINTER(ctypes.c_void_p)]
_library.apus_waiter_free.argtypes = [ctypes.c_void_p]
_library.apus_watch.argtypes = [ctypes.c_void_p, ctypes.c_int]
_library.apus_unwatch.argtypes = [ctypes.c_void_p, ctypes.c_int]
_library.apus_wait_queues.argtypes = [
    ctypes.c_void_p, ctypes.POINTER(Queue), ctypes.c_uint32, ctypes.POINTER(Done)]
_library.apus_wait.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.POINTER(Done)]
if _library.apus_abi() != ABI:
    raise ImportError(f"libapus has ABI {_library.apus_abi()}, this file is for {ABI}")


def _checked(result):
    if result < 0:
        raise Error(_library.apus_error().decode())
    return result


def _descriptor(socket):
    return socket if isinstance(socket, int) else socket.fileno()


def _count(received):
    # ctypes would silently drop the upper bits.
    if not 0 <= received < 2**32:
        raise ValueError(f"received is {received}: expected 0 to 2**32 - 1")
    return received


class Waiter:
    """Waits as a latency goal allows. The settings are the fields of Config; texts are str.

    A waiter that is no longer used is freed; close(), or a with statement, frees it at a known time.
    """

    def __init__(self, **settings):
        self._handle = None
        encoded = {key: value.encode() if isinstance(value, str) else value for key, value in settings.items()}
        handle = ctypes.c_void_p()
        _checked(_library.apus_waiter_new(Config(size=ctypes.sizeof(Config), **encoded), ctypes.byref(handle)))
        self._handle = handle

    def watch(self, socket):
        """Ends blocks when the socket, or the number of a descriptor, is readable."""
        _checked(_library.apus_watch(self._handle, _descriptor(socket)))

    def unwatch(self, socket):
        """Ends watch(). Call it before the socket is closed."""
        _checked(_library.apus_unwatch(self._handle, _descriptor(socket)))

    def wait(self, received):
        """Waits after a poll that returned this many packets. Returns what it did: POLL, PAUSE, SLEEP or BLOCK."""
        return _checked(_library.apus_wait(self._handle, _count(received), None))

    def wait_stamped(self, received, first_ns, last_ns):
        """The same, where the kernel's stamps say when the first and the last packet arrived: stamps() gives them."""
        queue = Queue(first_ns, last_ns, 0, _count(received), 0, STAMPED_REALTIME if received else 0)
        return _checked(_library.apus_wait_queues(self._handle, ctypes.byref(queue), 1, None))

    def close(self):
        """Frees the waiter and removes its telemetry. Does nothing if the waiter is closed already."""
        handle, self._handle = self._handle, None
        if handle:
            _checked(_library.apus_waiter_free(handle))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        # At the end of the interpreter, or if __init__ failed, parts may be missing.
        if getattr(self, "_handle", None) and _library is not None:
            _library.apus_waiter_free(self._handle)
