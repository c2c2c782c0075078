"""Reproducible sums of numpy arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ._arguments import whole
from ._arrays import as_array, code_of, is_float, type_name
from ._errors import Error


if TYPE_CHECKING:
    from typing import Tuple, Union

    from ._types import Array, ArrayLike, Text


class Sums:
    """The reproducible sums of :class:`foldwire.Communicator`."""

    def repro_sum(self, array: ArrayLike, axis: Union[None, int, Tuple[int, ...]] = None,
                  dtype: Text = None) -> Union[float, Array]:
        """Returns the sum of all ranks' values: the double nearest to the exact sum.

        Nothing is rounded before, so its bits do not depend on the number of ranks, on the order
        and the distribution of the values, or on the machine (docs/guarantees.md).

        :param array: floats; the ranks' arrays may differ in length along the axes that are summed
        :param axis: axis or tuple of axes to sum over, as in ``numpy.sum``. None: all axes, which
            gives a float. Otherwise the result is an array of float64
        :param dtype: name of the type if numpy lacks it, such as ``"bfloat16"``

        All sums of a call need one all-reduce of 16 bytes each, or 24 on more than 16 ranks. If
        bits of one sum lie far apart (25 decimal digits), such sums need a second one.
        """
        array = as_array(array)
        code = code_of(array.dtype, dtype)
        if not is_float(code):
            message = (f"reproducible sums are of floats, not {type_name(array.dtype, dtype)}; "
                       "all_reduce adds integers exactly")
            raise Error(message, kind="unsupported", field="dtype")
        if axis is None:
            shape, is_columns = (), False
        else:
            array, shape, is_columns = _arranged(array, axis)
        sums = np.empty(math.prod(shape))
        self.report = self._native.repro_sums(array, code, is_columns, sums, self.timeout)
        return sums.reshape(shape) if axis is not None else float(sums[0])


def _arranged(array, axis):
    """Returns the array with its summed axes first or last, the shape of the sums, and whether they
    are first."""
    if array.ndim == 0:
        raise Error(f"axis is {axis}, but this array is a scalar; leave it out", field="axis")
    axes = axis if isinstance(axis, tuple) else (axis,)
    axes = [whole(one, "axis", -array.ndim, array.ndim - 1) for one in axes]
    axes = sorted(one % array.ndim for one in axes)
    if len(set(axes)) < len(axes):
        raise Error("axis has the same axis twice", field="axis")
    kept = [at for at in range(array.ndim) if at not in axes]
    shape = tuple(array.shape[at] for at in kept)
    is_columns = axes == list(range(len(axes))) and bool(kept)
    if not is_columns:
        array = as_array(array.transpose(kept + axes))
    return array, shape, is_columns
