"""A communication hook for DistributedDataParallel, and its state."""

import collections
from typing import Optional

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ._arguments import has_bound, has_word, plan_text
from ._communicator import Communicator
from ._errors import Error
from ._plans import parse_plan
from ._torch_line import line_of
from ._torch_tensors import Lent, on_stream, why_through_cpu

__all__ = ["HookState", "hook"]


class HookState:
    """Settings of :func:`hook`, and its error feedback.

    :param comm: communicator of the ranks, from :func:`connect`. The hook does not use its bound
        and plan
    :param bound: error bound of each gradient; None: exact. A relative bound refers to the value
        range of each gradient, so that it keeps small layers
    :param plan: other words of the plan, for example ``"schedule:ring"``; the bound may be here
    :param feedback: adds the rounding error of each step to the gradient of the next step. Coarse
        bounds (``"rel:0.1"``) then train like exact gradients
    :param unbiased: rounds stochastically, so that the expected error is 0
    :param seed: seed for ``unbiased``
    :param model: the network, or the DistributedDataParallel around it. The error feedback of its
        parameters then has their names, so that :meth:`state_dict` can save it

    The hook's error feedback belongs to parameters, and outlives new buckets.

    A parameter that no rank used in a step keeps its error feedback until it is used again.
    """

    def __init__(self, comm: Communicator, bound: Optional[str] = None, *,
                 plan: Optional[str] = None, feedback: bool = False, unbiased: bool = False,
                 seed: int = 0, model: Optional[torch.nn.Module] = None):
        self.comm = comm
        # The hook's bound and plan, or none, are in place of those of the communicator.
        self._plain = Communicator(comm._native)
        self.bound = bound
        self.plan = plan
        text = plan_text(bound, plan)
        parse_plan(text)
        is_lossy = has_bound(text) or has_word(text, "codec:")
        self.feedback = feedback and is_lossy
        self.unbiased = unbiased and is_lossy
        self.seed = seed
        self.raw_bytes = 0
        """Uncompressed size in bytes of the gradients that this rank sent."""
        self.wire_bytes = 0
        """Size in bytes of the messages that this rank sent."""
        self._step = 0
        # Error feedback of each tensor: its key is its name, the number of a parameter without one,
        # or its place in a list.
        self._residues = {}
        # The parameters without names. As long as they exist, nothing else has their numbers.
        self._unnamed = {}
        self._parameters = dict(_named(model)) if model is not None else {}
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}

    def __repr__(self):
        plan = ", ".join(repr(words) for words in (self.bound, self.plan) if words) or "exact"
        more = "".join(f", {name}" for name in ("feedback", "unbiased") if getattr(self, name))
        return f"<foldwire.torch.HookState: {plan}{more}, of {self.comm!r}>"

    def state_dict(self) -> dict:
        """Returns this rank's error feedback and step, for a checkpoint.

        Each rank has its own, below a key of its own. So ranks save one each, or all of them with
        ``torch.distributed.checkpoint``, which takes a HookState beside a model.
        """
        if self._unnamed:
            message = "error feedback without names cannot be saved; pass model= to HookState"
            raise Error(message, kind="usage", field="model")
        saved = {"step": torch.tensor(self._step)}
        if self.feedback:
            for name, parameter in self._parameters.items():
                if name not in self._residues:
                    self._residues[name] = _no_feedback(parameter)
            own = {key: torch.from_numpy(residue.copy()) for key, residue in self._residues.items()}
            saved["residues"] = {f"rank{self.comm.rank}": own}
        return saved

    def load_state_dict(self, saved: dict) -> None:
        """Continues with what :meth:`state_dict` returned.

        If it has nothing of this rank, as with more ranks than before, the rank starts at zero.
        ``torch.distributed.checkpoint.load`` then needs
        ``planner=DefaultLoadPlanner(allow_partial_load=True)``.
        """
        self._step = int(saved["step"])
        own = saved.get("residues", {}).get(f"rank{self.comm.rank}", {})
        self._residues = {key: residue.cpu().numpy().copy() for key, residue in own.items()}

    def _words(self):
        words = [self.plan, self.bound]
        if self.unbiased:
            self._step += 1
            words.append(f"unbiased:{self.seed + self._step}")
        return ",".join(word for word in words if word) or "exact"

    def _residues_of(self, keys, arrays, dtype):
        """Returns the error feedback of some tensors. It starts at zero, also for a new shape."""
        for key, array in zip(keys, arrays):
            if getattr(self._residues.get(key), "size", -1) != array.size:
                self._residues[key] = self.comm.feedback_for(array, dtype)
        return [self._residues[key] for key in keys]

    def _keys(self, bucket):
        """Returns the keys of a bucket's parameters."""
        if not self._names:
            if not self.feedback:
                return None
            # DistributedDataParallel puts parameters into other buckets after the first step.
            found = {id(parameter): parameter for parameter in bucket.parameters()}
            self._unnamed.update(found)
            return list(found)
        try:
            return [self._names[id(parameter)] for parameter in bucket.parameters()]
        except KeyError:
            message = "a gradient is not of a parameter of HookState's model"
            raise Error(message, kind="usage", field="model") from None

    def average(self, index: int, gradients, keys=None) -> None:
        """Averages tensors over all ranks, in place, as one call.

        ``keys`` are the names of the tensors' error feedback; by default the places in the list,
        which ``index`` identifies.

        Raises :class:`Error` of kind ``"unsupported"`` for tensors that are not dense.
        """
        if not gradients:
            return
        for gradient in gradients:
            _check_dense(gradient)
        why = next(filter(None, map(why_through_cpu, gradients)), None)
        if self.feedback or self.unbiased:
            why = why or "error feedback and unbiased rounding are computed there"
        elif why is None and gradients[0].is_cuda:
            self._average_on_device(gradients)
            return
        lent = [Lent(gradient, why) for gradient in gradients]
        arrays, dtype = [own.array for own in lent], lent[0].dtype
        keys = keys or [f"{index}.{at}" for at in range(len(arrays))]
        residues = self._residues_of(keys, arrays, dtype) if self.feedback else None
        self._plain.timeout = self.comm.timeout
        self._plain.all_reduce_group(arrays, "avg", feedback=residues, plan=self._words(),
                                     dtype=dtype)
        self._count(self._plain.report)
        for own in lent:
            own.give_back()

    def _average_on_device(self, gradients) -> None:
        """Averages tensors on a GPU: a call for each, as many at once as the communicator has."""
        words, running = self._words(), collections.deque()
        self._plain.timeout = self.comm.timeout

        def finish():
            request, own = running.popleft()
            request.wait()
            self._count(request.report)
            own.give_back()

        for gradient in gradients:
            if len(running) == self.comm._native.n_calls:
                finish()
            own = Lent(gradient)
            request = self._plain.start_all_reduce(own.array, "avg", plan=words, out=own.array,
                                                   dtype=own.dtype)
            running.append((request, own))
        while running:
            finish()

    def _count(self, report) -> None:
        self.comm.report = report
        self.raw_bytes += report["raw_bytes"]
        self.wire_bytes += report["wire_bytes"]


def hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Communication hook for ``DistributedDataParallel.register_comm_hook``: averages a bucket.

    A background thread makes the calls, in the same order on all ranks, during the backward pass.
    The call of the last bucket is made in the calling thread, which would only wait. So
    ``backward()`` raises the error of any failed call.
    """
    # A bucket of a sparse gradient has an empty list of gradients.
    _check_dense(bucket.buffer())
    keys = state._keys(bucket)

    def average():
        state.average(bucket.index(), bucket.gradients(), keys)

    is_last = bucket.is_last()
    average = on_stream(average, bucket.buffer())
    work = line_of(state.comm).start(average, bucket.buffer(), is_async=not is_last)
    if is_last:
        work.wait()
    return work.get_future()


def _check_dense(gradient):
    if gradient.layout != torch.strided:
        message = ("sparse gradients are not supported; leave sparse=True out, or the hook for a "
                   "model with such layers")
        raise Error(message, kind="unsupported", field="gradients")


def _no_feedback(parameter):
    """Returns the initial error feedback of a parameter, wherever that is."""
    is_long = parameter.dtype == torch.float64
    return np.zeros(parameter.numel(), np.float64 if is_long else np.float32)


def _named(model):
    """Returns names and parameters of a model, without the prefix of DistributedDataParallel."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield name, parameter
