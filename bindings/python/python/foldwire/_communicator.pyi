from typing import (
    Any,
    Dict,
    Generator,
    Generic,
    Iterable,
    List,
    Literal,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

from numpy.typing import ArrayLike, NDArray

from . import _native

Op = Literal["sum", "avg", "mean", "min", "max", "prod"]
Report = Dict[str, Any]
Message = Union[Tuple[int, NDArray[Any]], Tuple[int, NDArray[Any], int]]
R = TypeVar("R", covariant=True)

class Request(Generic[R]):
    report: Optional[Report]
    def test(self) -> bool: ...
    def wait(self) -> R: ...
    def __await__(self) -> Generator[Any, None, R]: ...

class Communicator:
    rank: int
    size: int
    bound: Optional[str]
    timeout: Optional[float]
    plan: Optional[str]
    report: Optional[Report]
    def __init__(
        self, native: _native.Comm, bound: Optional[str] = ..., plan: Optional[str] = ...
    ) -> None: ...
    def share(self, n_values: int) -> slice: ...
    def all_reduce(
        self,
        array: ArrayLike,
        op: Op = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
        dtype: Optional[str] = ...,
    ) -> NDArray[Any]: ...
    def start_all_reduce(
        self,
        array: ArrayLike,
        op: Op = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
        dtype: Optional[str] = ...,
    ) -> Request[NDArray[Any]]: ...
    def reduce(
        self,
        array: ArrayLike,
        op: Op = ...,
        root: int = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
        dtype: Optional[str] = ...,
    ) -> Optional[NDArray[Any]]: ...
    def start_reduce(
        self,
        array: ArrayLike,
        op: Op = ...,
        root: int = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
        dtype: Optional[str] = ...,
    ) -> Request[Optional[NDArray[Any]]]: ...
    def reduce_scatter(
        self,
        array: ArrayLike,
        op: Op = ...,
        counts: Optional[Sequence[int]] = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
        dtype: Optional[str] = ...,
    ) -> NDArray[Any]: ...
    def start_reduce_scatter(
        self,
        array: ArrayLike,
        op: Op = ...,
        counts: Optional[Sequence[int]] = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
        dtype: Optional[str] = ...,
    ) -> Request[NDArray[Any]]: ...
    def scan(
        self,
        array: ArrayLike,
        op: Op = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> NDArray[Any]: ...
    def start_scan(
        self,
        array: ArrayLike,
        op: Op = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> Request[NDArray[Any]]: ...
    def exclusive_scan(
        self,
        array: ArrayLike,
        op: Op = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> NDArray[Any]: ...
    def start_exclusive_scan(
        self,
        array: ArrayLike,
        op: Op = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> Request[NDArray[Any]]: ...
    def broadcast(
        self,
        array: NDArray[Any],
        root: int = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        dtype: Optional[str] = ...,
    ) -> NDArray[Any]: ...
    def start_broadcast(
        self,
        array: NDArray[Any],
        root: int = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        dtype: Optional[str] = ...,
    ) -> Request[NDArray[Any]]: ...
    def all_gather(
        self,
        array: ArrayLike,
        counts: Optional[Sequence[int]] = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
        dtype: Optional[str] = ...,
    ) -> NDArray[Any]: ...
    def start_all_gather(
        self,
        array: ArrayLike,
        counts: Optional[Sequence[int]] = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
        dtype: Optional[str] = ...,
    ) -> Request[NDArray[Any]]: ...
    def gather(
        self,
        array: ArrayLike,
        root: int = ...,
        counts: Optional[Sequence[int]] = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> Optional[NDArray[Any]]: ...
    def start_gather(
        self,
        array: ArrayLike,
        root: int = ...,
        counts: Optional[Sequence[int]] = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> Request[Optional[NDArray[Any]]]: ...
    def scatter(
        self,
        array: Optional[ArrayLike],
        out: NDArray[Any],
        root: int = ...,
        counts: Optional[Sequence[int]] = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
    ) -> NDArray[Any]: ...
    def start_scatter(
        self,
        array: Optional[ArrayLike],
        out: NDArray[Any],
        root: int = ...,
        counts: Optional[Sequence[int]] = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
    ) -> Request[NDArray[Any]]: ...
    def all_to_all(
        self,
        array: ArrayLike,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> NDArray[Any]: ...
    def start_all_to_all(
        self,
        array: ArrayLike,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> Request[NDArray[Any]]: ...
    def all_to_all_v(
        self,
        array: ArrayLike,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> NDArray[Any]: ...
    def start_all_to_all_v(
        self,
        array: ArrayLike,
        send_counts: Sequence[int],
        recv_counts: Sequence[int],
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
        out: Optional[NDArray[Any]] = ...,
    ) -> Request[NDArray[Any]]: ...
    def barrier(self) -> None: ...
    def start_barrier(self) -> Request[None]: ...
    def all_reduce_group(
        self,
        arrays: Iterable[NDArray[Any]],
        op: Op = ...,
        bounds: Union[None, str, Sequence[Optional[str]]] = ...,
        feedback: Optional[Iterable[NDArray[Any]]] = ...,
        plan: Optional[str] = ...,
        dtype: Optional[str] = ...,
    ) -> List[NDArray[Any]]: ...
    @staticmethod
    def feedback_for(array: NDArray[Any], dtype: Optional[str] = ...) -> NDArray[Any]: ...
    def exchange(
        self,
        sends: Iterable[Message] = ...,
        recvs: Iterable[Message] = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
    ) -> None: ...
    def send(
        self,
        array: ArrayLike,
        to: int,
        tag: int = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
    ) -> None: ...
    def recv(self, out: NDArray[Any], source: int, tag: int = ...) -> NDArray[Any]: ...
    def start_send(
        self,
        array: ArrayLike,
        to: int,
        tag: int = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
    ) -> Request[None]: ...
    def start_recv(
        self, out: NDArray[Any], source: int, tag: int = ...
    ) -> Request[NDArray[Any]]: ...
    def send_recv(
        self,
        array: ArrayLike,
        to: int,
        out: NDArray[Any],
        source: int,
        tag: int = ...,
        bound: Optional[str] = ...,
        plan: Optional[str] = ...,
    ) -> NDArray[Any]: ...
    def split(
        self, color: Optional[int], key: int = ..., calls: Optional[int] = ...
    ) -> Optional[Communicator]: ...
    def duplicate(self) -> Communicator: ...
    def shrink(self, patience: float = ...) -> Communicator: ...
    @property
    def is_poisoned(self) -> bool: ...
    def progress(self) -> None: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Communicator: ...
    def __exit__(self, *_: Any) -> None: ...
