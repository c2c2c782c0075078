"""Collectives of torch's process groups, as calls of a communicator."""

import math

import torch
from torch.distributed import distributed_c10d as c10d

from ._torch_line import BackendError
from ._torch_tensors import Lent, is_expanded, is_float, is_usable, op_of, reduce_in_place

__all__ = ["Calls"]


class Calls:
    """The collectives of :class:`ProcessGroup` and :class:`Backend`.

    A method takes what torch's methods of that name take, and returns a work. A call that Foldwire
    lacks for the type, the operation or the layout goes to gloo, on all ranks alike.
    """

    # Reductions

    def allreduce(self, tensors, opts=None):
        opts = opts or c10d.AllreduceOptions()
        tensor, op = tensors[0], op_of(opts, tensors[0])
        if op is None or len(tensors) != 1 or not is_usable(tensor):
            return self._pass_on("allreduce", tensors, opts)
        _check_written(tensor)

        def call(comm):
            reduce_in_place(comm, tensor, op)

        return self._start(call, tensors, opts, tensor, self._bounded(op, tensor, tensor.nbytes))

    def allreduce_coalesced(self, tensors, opts=None):
        opts = opts or c10d.AllreduceCoalescedOptions()
        ops = {op_of(opts, tensor) for tensor in tensors}
        if len(ops) != 1 or None in ops or not all(map(is_usable, tensors)):
            return self._pass_on("allreduce_coalesced", tensors, opts)
        (op,) = ops
        _check_written(*tensors)
        alike = len({tensor.dtype for tensor in tensors}) == 1
        # A group of arrays on a GPU is a call for each.
        is_group = alike and is_float(tensors[0]) and not tensors[0].is_cuda

        def call(comm):
            lent = [Lent(tensor) for tensor in tensors]
            if is_group:
                comm.all_reduce_group([own.array for own in lent], op, dtype=lent[0].dtype)
            else:
                for own in lent:
                    comm.all_reduce(own.array, op, out=own.array, dtype=own.dtype)
            for own in lent:
                own.give_back()

        n_bytes = sum(tensor.nbytes for tensor in tensors)
        comm = self._bounded(op, tensors[0], n_bytes) if alike else None
        return self._start(call, tensors, opts, tensors[0], comm)

    def reduce(self, tensors, opts=None):
        opts = opts or c10d.ReduceOptions()
        tensor, op, root = tensors[0], op_of(opts, tensors[0]), opts.rootRank
        if op is None or len(tensors) != 1 or not is_usable(tensor):
            return self._pass_on("reduce", tensors, opts)
        if self.rank() == root:
            _check_written(tensor)

        def call(comm):
            own = Lent(tensor)
            out = own.array if comm.rank == root else None
            comm.reduce(own.array, op, root, out=out, dtype=own.dtype)
            if out is not None:
                own.give_back()

        return self._start(call, tensors, opts, tensor)

    def reduce_scatter(self, output_tensors, input_tensors, opts=None):
        opts = opts or c10d.ReduceScatterOptions()
        output, inputs = output_tensors[0], input_tensors[0]
        op = op_of(opts, output)
        if op is None or len(output_tensors) != 1 or not is_usable(output):
            return self._pass_on("reduce_scatter", output_tensors, input_tensors, opts)
        _check_types(output, *inputs)
        _check_written(output)
        counts = [tensor.numel() for tensor in inputs]
        _check_share(counts, output, self.size(), self.rank())

        def call(comm):
            own, to = Lent(_joined(inputs)), Lent(output)
            comm.reduce_scatter(own.array, op, _unless_even(counts), out=to.array, dtype=own.dtype)
            to.give_back()

        comm = self._bounded(op, output, sum(counts) * output.element_size())
        return self._start(call, [output], opts, output, comm)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        opts = opts or c10d.ReduceScatterOptions()
        ops = {op_of(opts, tensor) for tensor in outputs}
        if len(ops) != 1 or None in ops or not all(map(is_usable, outputs)):
            name = "reduce_scatter_tensor_coalesced"
            name = name if hasattr(self._gloo, name) else "reduce_scatter_single_coalesced"
            return self._pass_on(name, outputs, inputs, opts)
        (op,) = ops
        _check_written(*outputs)
        for output, tensor in zip(outputs, inputs):
            _check_types(output, tensor)
            _check_even(tensor, output, self.size())

        def call(comm):
            for output, tensor in zip(outputs, inputs):
                own, to = Lent(tensor), Lent(output)
                comm.reduce_scatter(own.array, op, out=to.array, dtype=own.dtype)
                to.give_back()

        n_bytes = sum(tensor.nbytes for tensor in inputs)
        alike = all(map(is_float, outputs))
        comm = self._bounded(op, inputs[0], n_bytes) if alike else None
        return self._start(call, outputs, opts, outputs[0], comm)

    def reduce_scatter_single(self, output, tensor, opts=None):
        return self.reduce_scatter_single_coalesced([output], [tensor], opts)

    # Data movement

    def broadcast(self, tensors, opts=None):
        opts = opts or c10d.BroadcastOptions()
        tensor = tensors[0]
        if len(tensors) != 1 or not is_usable(tensor):
            return self._pass_on("broadcast", tensors, opts)
        is_root = self.rank() == opts.rootRank
        if not is_root:
            _check_written(tensor)

        def call(comm):
            own = Lent(tensor)
            comm.broadcast(own.array, opts.rootRank, dtype=own.dtype)
            if not is_root:
                own.give_back()

        return self._start(call, tensors, opts, tensor)

    def allgather(self, output_tensors, input_tensors, opts=None):
        opts = opts or c10d.AllgatherOptions()
        outputs, tensor = output_tensors[0], input_tensors[0]
        if len(input_tensors) != 1 or not is_usable(tensor):
            return self._pass_on("allgather", output_tensors, input_tensors, opts)
        _check_types(tensor, *outputs)
        _check_written(*outputs)
        counts = [output.numel() for output in outputs]
        _check_share(counts, tensor, self.size(), self.rank())

        def call(comm):
            own = Lent(tensor)
            each = _counts(outputs, own.array)
            rows = comm.all_gather(own.array, _unless_even(each), dtype=own.dtype)
            _deal(rows, each, outputs)

        n_bytes = sum(counts) * tensor.element_size()
        return self._start(call, output_tensors, opts, tensor, self._gathering(tensor, n_bytes))

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        opts = opts or c10d.AllgatherOptions()
        if not all(map(is_usable, inputs)):
            name = "allgather_into_tensor_coalesced"
            name = name if hasattr(self._gloo, name) else "all_gather_single_coalesced"
            return self._pass_on(name, outputs, inputs, opts)
        _check_written(*outputs)
        for output, tensor in zip(outputs, inputs):
            _check_types(output, tensor)
            _check_even(output, tensor, self.size())

        def call(comm):
            for output, tensor in zip(outputs, inputs):
                own, to = Lent(tensor), Lent(output)
                rows = to.array.reshape(comm.size, -1)
                comm.all_gather(own.array, out=rows, dtype=own.dtype)
                to.give_back()

        n_bytes = sum(output.nbytes for output in outputs)
        comm = self._gathering(inputs[0], n_bytes) if all(map(is_float, inputs)) else None
        return self._start(call, outputs, opts, inputs[0], comm)

    def all_gather_single(self, output, tensor, opts=None):
        return self.all_gather_single_coalesced([output], [tensor], opts)

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        # An entry of `output_lists` has the tensors of one rank.
        opts = opts or c10d.AllgatherOptions()
        if not all(map(is_usable, inputs)):
            return self._pass_on("allgather_coalesced", output_lists, inputs, opts)
        for outputs in output_lists:
            _check_written(*outputs)
        for at, tensor in enumerate(inputs):
            _check_types(tensor, *(outputs[at] for outputs in output_lists))
            counts = [outputs[at].numel() for outputs in output_lists]
            _check_share(counts, tensor, self.size(), self.rank())

        def call(comm):
            for at, tensor in enumerate(inputs):
                own, outputs = Lent(tensor), [outputs[at] for outputs in output_lists]
                each = _counts(outputs, own.array)
                rows = comm.all_gather(own.array, _unless_even(each), dtype=own.dtype)
                _deal(rows, each, outputs)

        return self._start(call, output_lists, opts, inputs[0])

    def gather(self, output_tensors, input_tensors, opts=None):
        opts = opts or c10d.GatherOptions()
        tensor, outputs = input_tensors[0], output_tensors[0] if output_tensors else []
        if not is_usable(tensor):
            return self._pass_on("gather", output_tensors, input_tensors, opts)
        _check_types(tensor, *outputs)
        _check_written(*outputs)
        if self.rank() == opts.rootRank:
            _check_alike(outputs, tensor, self.size())

        def call(comm):
            own = Lent(tensor)
            rows = comm.gather(own.array, opts.rootRank)
            if rows is not None:
                _deal(rows, [len(own.array)] * comm.size, outputs)

        return self._start(call, output_tensors, opts, tensor)

    def gather_single(self, output, tensor, opts=None):
        opts = opts or c10d.GatherOptions()
        if not is_usable(tensor):
            # A reshaped tensor with gaps would be a copy.
            outputs = [list(output.view(self.size(), -1))] if output is not None else []
            return self._pass_on("gather", outputs, [tensor], opts)
        is_root = self.rank() == opts.rootRank
        if is_root:
            if output is None:
                raise BackendError("the root has no tensor for the result", field="output")
            _check_types(tensor, output)
            _check_written(output)
            _check_even(output, tensor, self.size())

        def call(comm):
            own, to = Lent(tensor), Lent(output) if is_root else None
            out = to.array.reshape(comm.size, -1) if is_root else None
            comm.gather(own.array, opts.rootRank, out=out)
            if is_root:
                to.give_back()

        return self._start(call, [output] if is_root else [], opts, tensor)

    def scatter(self, output_tensors, input_tensors, opts=None):
        opts = opts or c10d.ScatterOptions()
        output, inputs = output_tensors[0], input_tensors[0] if input_tensors else []
        if not is_usable(output):
            return self._pass_on("scatter", output_tensors, input_tensors, opts)
        _check_types(output, *inputs)
        _check_written(output)
        if self.rank() == opts.rootRank:
            _check_alike(inputs, output, self.size())

        def call(comm):
            to = Lent(output)
            rows = Lent(_joined(inputs)).array if inputs else None
            comm.scatter(rows, to.array, opts.rootRank)
            to.give_back()

        return self._start(call, output_tensors, opts, output)

    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts=None):
        opts = opts or c10d.AllToAllOptions()
        if not is_usable(tensor):
            return self._pass_on("alltoall_base", output, tensor, output_splits, input_splits,
                                 opts)
        _check_types(output, tensor)
        _check_written(output)

        def call(comm):
            own, to = Lent(tensor), Lent(output)
            back = _splits(output_splits, to.array, output, comm.size)
            counts = _splits(input_splits, own.array, tensor, comm.size)
            comm.all_to_all_v(own.array, counts, back, out=to.array)
            to.give_back()

        return self._start(call, [output], opts, tensor)

    def alltoall(self, output_tensors, input_tensors, opts=None):
        opts = opts or c10d.AllToAllOptions()
        if not all(map(is_usable, input_tensors)):
            return self._pass_on("alltoall", output_tensors, input_tensors, opts)
        _check_types(*input_tensors, *output_tensors)
        _check_written(*output_tensors)

        def call(comm):
            own, to = Lent(_joined(input_tensors)), [Lent(output) for output in output_tensors]
            item = input_tensors[0].element_size() // own.array.itemsize
            counts = [tensor.numel() * item for tensor in input_tensors]
            back = [len(lent.array) for lent in to]
            rows = comm.all_to_all_v(own.array, counts, back)
            _deal(rows, back, output_tensors)

        return self._start(call, output_tensors, opts, input_tensors[0])

    def barrier(self, opts=None):
        return self._start(lambda comm: comm.barrier(), None, opts or c10d.BarrierOptions())

    # Sparse tensors

    def allreduce_sparse(self, tensors, opts=None):
        return self._pass_on("allreduce_sparse", tensors, opts or c10d.AllreduceOptions())

    # Messages

    def send(self, tensors, rank, tag=0):
        return self._pass_on("send", tensors, rank, tag, peer=rank)

    def recv(self, tensors, rank, tag=0):
        return self._pass_on("recv", tensors, rank, tag, peer=rank)

    def recv_anysource(self, tensors, tag=0):
        return self._pass_on("recv_anysource", tensors, tag)

    def monitored_barrier(self, opts=None, wait_all_ranks=False, timeout=None):
        # Its error names the missing ranks, and does not end gloo's group.
        self._line.check()
        given = timeout if opts is None else getattr(opts, "timeout", opts)
        limit = self._timeout if given is None or given.total_seconds() < 0 else given
        return self._gloo.monitored_barrier(limit, wait_all_ranks)

    # Earlier names of the same calls.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    gather_into_tensor = gather_single


def _joined(tensors):
    """Returns the values of tensors as one tensor."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _deal(values, counts, outputs):
    """Copies an array's values to tensors: ``counts[i]`` values to the tensor at i."""
    values, at = values.reshape(-1), 0
    for count, output in zip(counts, outputs):
        to = Lent(output)
        # numpy would repeat a single value.
        if len(to.array) != count:
            raise BackendError(f"{count} values came for a tensor of {len(to.array)}",
                               field="count")
        to.array[:] = values[at:at + count]
        to.give_back()
        at += count
    if outputs and outputs[0].is_cuda:
        # Whoever waits for the call may use another stream than that of the copies.
        torch.cuda.current_stream(outputs[0].device).synchronize()


def _counts(tensors, array):
    """Returns the lengths of tensors in items of an array, which has values of the same type."""
    return [tensor.nbytes // array.itemsize for tensor in tensors]


def _unless_even(counts):
    """Returns the counts, or None if they are equal."""
    return None if len(set(counts)) <= 1 else counts


def _check_types(tensor, *others):
    for other in others:
        if other.dtype != tensor.dtype:
            raise BackendError(f"tensors of one call have types {tensor.dtype} and {other.dtype}",
                               field="dtype", ours=str(tensor.dtype))


def _check_written(*tensors):
    """Checks that results can be written to tensors."""
    if any(map(is_expanded, tensors)):
        raise BackendError("a tensor that was expanded cannot have a result, because its values "
                           "share memory; pass a copy (`clone`)", field="tensor")


def _check_share(counts, tensor, size, rank):
    """Checks that there is a count for each rank, and that a tensor has its rank's."""
    if len(counts) != size:
        raise BackendError(f"there are {len(counts)} tensors for {size} ranks", field="count")
    if tensor.numel() != counts[rank]:
        raise BackendError(f"{tensor.numel()} values are not {counts[rank]}, the length of this "
                           "rank's tensor in the list", field="count")


def _check_alike(tensors, tensor, size):
    """Checks that there is a tensor for each rank, as long as this rank's."""
    if len(tensors) != size:
        raise BackendError(f"there are {len(tensors)} tensors for {size} ranks", field="count")
    for each in tensors:
        if each.numel() != tensor.numel():
            raise BackendError(f"a tensor of the list has {each.numel()} values, and this rank's "
                               f"has {tensor.numel()}", field="count")


def _check_even(tensor, part, size):
    if tensor.numel() != size * part.numel():
        raise BackendError(f"{tensor.numel()} values are not {part.numel()} for each of {size} "
                           "ranks", field="count")


def _splits(splits, array, tensor, size):
    """Returns the number of items of an array for each rank. The splits of a tensor are rows, and
    those of the other tensor of the call may be longer or shorter."""
    n_rows = tensor.shape[0] if tensor.dim() else 1
    if not splits and n_rows % size != 0:
        raise BackendError(f"{n_rows} rows cannot be divided evenly among {size} ranks",
                           field="splits")
    splits = splits or [n_rows // size] * size
    if sum(splits) != n_rows:
        raise BackendError(f"splits add up to {sum(splits)} rows, but the tensor has {n_rows}",
                           field="splits")
    row = math.prod(tensor.shape[1:]) * tensor.element_size() // array.itemsize
    return [count * row for count in splits]
