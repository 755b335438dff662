"""KV pages on the host: who holds them, what is in them, what may be reused. No jax."""

from ninfer_jax.cache.allocator import Allocator
from ninfer_jax.cache.base import CacheView, ContiguousCacheView, KVCache, PageCacheView, PageCounts
from ninfer_jax.cache.contiguous import ContiguousCache
from ninfer_jax.cache.page_cache import PageCache
from ninfer_jax.cache.policy import Candidate, PrefixPolicy, ReusePath, RootOnlyPolicy, WholePagePolicy
from ninfer_jax.cache.prefix import PrefixCache
from ninfer_jax.cache.slots import SlotPool, SlotUse
from ninfer_jax.cache.storage import Storage
from ninfer_jax.cache.table import Task, TaskTable
from ninfer_jax.cache.transaction import ResourceTransaction, TransactionState

__all__ = [
    "Allocator",
    "CacheView",
    "Candidate",
    "ContiguousCache",
    "ContiguousCacheView",
    "KVCache",
    "PageCache",
    "PageCacheView",
    "PageCounts",
    "PrefixCache",
    "PrefixPolicy",
    "ResourceTransaction",
    "ReusePath",
    "RootOnlyPolicy",
    "SlotPool",
    "SlotUse",
    "Storage",
    "Task",
    "TaskTable",
    "TransactionState",
    "WholePagePolicy",
]
