from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

DTYPES: List[Tuple[str, int, int, bool]]
VERSION: str
HAS_DEVICES: bool
HDF5_FILTER: Tuple[int, int]

class Plan:
    def __new__(cls, text: str) -> Plan: ...

class Comm:
    rank: int
    size: int
    n_calls: int
    def call(self, call: Any) -> Dict[str, Any]: ...
    def start(self, call: Any) -> Request: ...
    def exchange(
        self, messages: Sequence[Tuple[Any, int, int, int, Optional[Plan]]]
    ) -> Dict[str, Any]: ...
    def start_message(
        self, message: Tuple[Any, int, int, int, Optional[Plan]]
    ) -> Request: ...
    def all_reduce_group(
        self,
        arrays: Sequence[Any],
        bounds: Sequence[Optional[str]],
        feedback: Optional[Sequence[Any]],
        dtype: int,
        residue: int,
        op: int,
        plan: Plan,
    ) -> Dict[str, Any]: ...
    def repro_sums(
        self, values: Any, dtype: int, is_columns: bool, sums: Any
    ) -> Dict[str, Any]: ...
    def split(self, color: Optional[int], key: int, n_calls: int) -> Optional[Comm]: ...
    def shrink(self, patience: float) -> Comm: ...
    def admit(
        self,
        store: Any,
        job: str,
        size: int,
        times: Tuple[float, float],
        generation: int,
        facts: bytes,
    ) -> Tuple[Comm, int, bytes, List[Optional[int]]]: ...
    def share(self, n_values: int) -> Tuple[int, int]: ...
    def is_poisoned(self) -> bool: ...
    def progress(self) -> None: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...

class Store:
    @staticmethod
    def memory() -> Store: ...
    @staticmethod
    def file(folder: str) -> Store: ...
    @staticmethod
    def tcp(at: str, hosts: bool, secret: Optional[str], limit: float) -> Store: ...
    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str) -> Optional[bytes]: ...
    def wait(self, key: str, limit: float) -> Optional[bytes]: ...
    def progress(self) -> None: ...
    def is_hosted_here(self) -> bool: ...

def meet(
    store: Any,
    place: Tuple[int, int, str, int],
    limit: float = ...,
    timeout: Optional[float] = ...,
    deadline: Optional[float] = ...,
    lanes: Optional[int] = ...,
    link_rate: Optional[float] = ...,
    n_calls: int = ...,
) -> Comm: ...

def rejoin(
    store: Any,
    job: str,
    limit: float = ...,
    timeout: Optional[float] = ...,
    deadline: Optional[float] = ...,
    n_calls: int = ...,
) -> Tuple[Comm, int, bytes, List[Optional[int]]]: ...

class Request:
    def test(self) -> bool: ...
    def poll(self, wake: Callable[[], None]) -> bool: ...
    def wait(self) -> Dict[str, Any]: ...

def threads(
    n_ranks: int,
    rate: Optional[float] = ...,
    timeout: Optional[float] = ...,
    deadline: Optional[float] = ...,
    lanes: Optional[int] = ...,
    n_calls: int = ...,
) -> List[Comm]: ...
def compress(
    values: Any, dtype: int, layout: Tuple[List[int], bool, bool, bool, Optional[float]], plan: str
) -> bytes: ...
def decompress(compressed: Any) -> bytearray: ...
def info(
    compressed: Any,
) -> Tuple[int, Tuple[List[int], bool, bool, bool, Optional[float]], float]: ...
def unique_id() -> bytes: ...
def join(
    id: Optional[bytes] = ...,
    n_ranks: int = ...,
    rank: int = ...,
    limit: float = ...,
    timeout: Optional[float] = ...,
    deadline: Optional[float] = ...,
    lanes: Optional[int] = ...,
    link_rate: Optional[float] = ...,
    n_calls: int = ...,
) -> Comm: ...
