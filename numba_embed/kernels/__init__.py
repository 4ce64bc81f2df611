"""Numba kernels: addresses in, nothing raised, nothing allocated that the plan did not lay out.

A kernel's body is `prange` loops and calls of `jit` functions, nothing else: in a parallel function
Numba removes stores to arrays that it does not see used again, and it knows nothing of what lies
at an address.
"""
