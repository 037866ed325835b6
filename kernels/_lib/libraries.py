"""Calls of cuBLAS and CuPy that the lib_ kernels are made of: (arrays, context) -> arrays.

cuBLAS is called through its C interface, since CuPy sets no atomics mode. Matrices are column-major: what is
written row after row here is cuBLAS's transpose, and a symmetric matrix is its own.
"""

import ctypes

import cupy as cp

_N, _T, _LOWER = 0, 1, 0
_NOT_ALLOWED, _ALLOWED = 0, 1
_ONE, _ZERO = ctypes.c_float(1), ctypes.c_float(0)


def _cublas():
    """The cuBLAS that CuPy loads."""
    from cupy_backends.cuda.libs import cublas

    major = cublas.getVersion(cp.cuda.device.get_cublas_handle()) // 10000
    return ctypes.CDLL(f"libcublas.so.{major}")


def _pointer(array):
    return ctypes.c_void_p(array.data.ptr)


class _Handle:
    """A handle of its own for one call, its atomics mode set as the manifest says."""

    def __init__(self, context):
        self.library = _cublas()
        self.handle = ctypes.c_void_p()
        self("cublasCreate_v2", ctypes.byref(self.handle))
        allowed = _ALLOWED if context.defines["ATOMICS"] == "1" else _NOT_ALLOWED
        self("cublasSetAtomicsMode", self.handle, allowed)
        version = ctypes.c_int()
        self("cublasGetVersion_v2", self.handle, ctypes.byref(version))
        number = version.value
        context.library("cublas", f"{number // 10000}.{number // 100 % 100}.{number % 100}")

    def __call__(self, function, *arguments):
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function} failed with cuBLAS status {status}")

    def call(self, function, *arguments):
        """One routine; its result is there when this returns."""
        stream = ctypes.c_void_p(cp.cuda.get_current_stream().ptr)
        self("cublasSetStream_v2", self.handle, stream)
        self(function, self.handle, *arguments)
        cp.cuda.get_current_stream().synchronize()
        self("cublasDestroy_v2", self.handle)


def sgemm(arrays, context):
    """C = A B of square matrices of SIDE rows."""
    side = int(context.defines["SIDE"])
    c = cp.empty(side * side, cp.float32)
    _Handle(context).call(
        "cublasSgemm_v2", _N, _N, side, side, side, ctypes.byref(_ONE),
        _pointer(arrays["b"]), side, _pointer(arrays["a"]), side, ctypes.byref(_ZERO), _pointer(c), side,
    )  # fmt: skip
    return {"c": c}


def sgemv(arrays, context):
    """y = A x, A of ROWS rows."""
    rows = int(context.defines["ROWS"])
    columns = arrays["x"].size
    y = cp.empty(rows, cp.float32)
    _Handle(context).call(
        "cublasSgemv_v2", _T, columns, rows, ctypes.byref(_ONE), _pointer(arrays["a"]), columns,
        _pointer(arrays["x"]), 1, ctypes.byref(_ZERO), _pointer(y), 1,
    )  # fmt: skip
    return {"y": y}


def ssymv(arrays, context):
    """y = A x, A symmetric; only its upper half is looked at, cuBLAS's lower one."""
    side = arrays["x"].size
    y = cp.empty(side, cp.float32)
    _Handle(context).call(
        "cublasSsymv_v2", _LOWER, side, ctypes.byref(_ONE), _pointer(arrays["a"]), side,
        _pointer(arrays["x"]), 1, ctypes.byref(_ZERO), _pointer(y), 1,
    )  # fmt: skip
    return {"y": y}


def total(arrays, context):
    """CuPy's sum of x."""
    return {"total": arrays["x"].sum(keepdims=True)}


def ascending(arrays, context):
    """CuPy's sort of x."""
    return {"sorted": cp.sort(arrays["x"])}


def scan(arrays, context):
    """CuPy's inclusive sums of x."""
    return {"sums": cp.cumsum(arrays["x"])}
