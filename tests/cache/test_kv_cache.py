"""The cache's contract, for both layouts; sharing and eviction for the paged one."""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ninfer_jax.cache import (
    Candidate,
    ContiguousCache,
    ContiguousCacheView,
    KVCache,
    PageCache,
    PageCacheView,
    ReusePath,
    RootOnlyPolicy,
    TransactionState,
)
from ninfer_jax.cache.policy import ROOT
from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.types import PreparedPrompt
from tests.fakes import fake_storage


def prompt_of(tokens: Sequence[int]) -> PreparedPrompt:
    return PreparedPrompt(tuple(tokens))


def begin(cache: KVCache, task: int, tokens: Sequence[int], output: int = 1, lane: int = 0) -> Candidate:
    """Admit a task with the best candidate and compute the rest of its prompt."""
    prompt = prompt_of(tokens)
    candidate = cache.candidates(prompt)[0]
    transaction = cache.begin(task, lane, prompt, cache.entitled_pages(len(tokens), output), candidate)
    assert transaction.progress() is TransactionState.COMMITTED
    cache.advance(task, prompt.token_ids[candidate.num_tokens :])
    return candidate


@pytest.fixture(params=["paged", "contiguous"])
def cache(request: pytest.FixtureRequest) -> KVCache:
    return PageCache(fake_storage(16)) if request.param == "paged" else ContiguousCache(fake_storage(16, 2))


@pytest.mark.parametrize(
    ("prompt", "output", "pages"),
    [(64, 0, 1), (64, 1, 1), (64, 2, 2), (65, 1, 2), (1, 64, 1), (1, 65, 2), (128, 0, 2), (1000, 25, 16)],
)
def test_04_entitlement(prompt: int, output: int, pages: int) -> None:
    assert KVCache.entitled_pages(prompt, output) == pages


def test_a_task_holds_its_whole_entitlement_from_the_start(cache: KVCache) -> None:
    begin(cache, 1, range(10), output=200)
    before = cache.view(1)
    assert len(before.pages) == 4
    assert before.total_len == 10
    assert cache.counts().reserved == cache.counts().held == 4
    cache.advance(1, [5] * 199)
    assert cache.view(1).pages == before.pages
    assert cache.view(1).total_len == 209
    with pytest.raises(AssertionError, match="past the entitlement"):
        cache.advance(1, [5] * 48)
    cache.free(1)
    assert cache.counts().held == cache.counts().reserved == 0
    cache.check()
    with pytest.raises(KeyError):
        cache.free(1)


def test_06_a_refused_admission_changes_nothing(cache: KVCache) -> None:
    begin(cache, 1, range(300), output=1)
    counts = cache.counts()
    with pytest.raises(AssertionError):
        cache.begin(2, 1, prompt_of(range(900)), cache.entitled_pages(900, 1), ROOT)
    assert (cache.counts(), len(cache.tasks)) == (counts, 1)
    cache.check()


def test_an_aborted_transaction_returns_everything(cache: KVCache) -> None:
    transaction = cache.begin(1, 0, prompt_of(range(70)), 2, ROOT)
    transaction.abort()
    assert cache.counts().held == 0
    cache.check()


def test_contiguous_regions() -> None:
    cache = ContiguousCache(fake_storage(16, 2))
    begin(cache, 1, range(100), lane=1)
    begin(cache, 2, range(100), lane=0)
    view = cache.view(1)
    assert isinstance(view, ContiguousCacheView)
    assert (view.first_page, view.num_pages, view.pages) == (9, 2, (9, 10))
    assert cache.view(2).pages == (1, 2)
    cache.free(2)
    with pytest.raises(AssertionError, match="lane 1 is taken"):
        cache.begin(3, 1, prompt_of([1]), 1, ROOT)


class TestSharing:
    def test_full_pages_are_shared_while_their_writer_runs(self) -> None:
        cache = PageCache(fake_storage(16))
        begin(cache, 1, range(200), output=50)
        candidate = begin(cache, 2, range(200), output=50)
        assert candidate == Candidate(ReusePath.SHARED_STABLE_PREFIX, 192, cache.view(1).pages[:3])
        assert isinstance(cache.view(2), PageCacheView)
        assert cache.view(2).pages[:3] == cache.view(1).pages[:3]
        assert not set(cache.view(2).pages[3:]) & set(cache.view(1).pages)
        assert cache.counts().shared == 3
        cache.check()

    def test_a_hit_leaves_a_token_to_compute(self) -> None:
        cache = PageCache(fake_storage(16))
        begin(cache, 1, range(128))
        assert cache.candidates(prompt_of(range(128)))[0].num_tokens == 64
        assert cache.candidates(prompt_of(range(129)))[0].num_tokens == 128

    def test_prompt_and_output_outlive_the_request(self) -> None:
        cache = PageCache(fake_storage(16))
        begin(cache, 1, range(100), output=101)
        cache.advance(1, range(500, 600))
        cache.free(1)
        assert cache.counts().cached == 3
        longer = [*range(100), *range(500, 600), 7]
        assert cache.candidates(prompt_of(longer))[0].num_tokens == 192
        assert cache.candidates(prompt_of([*longer[:150], 9, 9]))[0].num_tokens == 128

    def test_cached_pages_give_way_deepest_first(self) -> None:
        cache = PageCache(fake_storage(6))
        begin(cache, 1, range(257))
        cache.free(1)
        assert (cache.counts().cached, cache.counts().free) == (4, 2)
        begin(cache, 2, range(1000, 1193))
        cache.check()
        assert cache.candidates(prompt_of(range(257)))[0].num_tokens == 128

    def test_a_hit_protects_its_own_pages_from_making_room(self) -> None:
        cache = PageCache(fake_storage(4))
        begin(cache, 1, range(193))
        cache.free(1)
        candidate = begin(cache, 2, [*range(129), 5], output=120)
        assert candidate.num_tokens == 128
        assert len(cache.view(2).pages) == 4
        cache.check()

    def test_two_writers_of_the_same_text_keep_their_own_pages(self) -> None:
        cache = PageCache(fake_storage(16))
        prompt = prompt_of(range(130))
        for task in (1, 2):
            cache.begin(task, task - 1, prompt, 3, ROOT)
        for task in (1, 2):
            cache.advance(task, range(130))
        cache.check()
        assert not set(cache.view(1).pages) & set(cache.view(2).pages)
        assert cache.candidates(prompt)[0].pages == cache.view(1).pages[:2]
        cache.free(1)
        cache.free(2)
        cache.check()
        assert cache.counts().cached == 2

    def test_what_hangs_below_an_evicted_page_cannot_be_found(self) -> None:
        """Task 2 publishes its third block below pages that only task 1 holds; when those are evicted
        the block must leave the index although its page is still held."""
        cache = PageCache(fake_storage(11))
        prompt = prompt_of(range(130))
        for task in (1, 2):
            cache.begin(task, task - 1, prompt, 5 if task == 2 else 3, ROOT)
            cache.advance(task, range(130))
        cache.advance(2, range(130, 193))
        cache.free(1)
        assert cache.candidates(prompt_of(range(193)))[0].num_tokens == 192
        begin(cache, 3, range(2000, 2000 + 6 * 64))
        cache.check()
        assert cache.candidates(prompt_of(range(193)))[0] == ROOT
        cache.advance(2, range(193, 257))
        cache.check()
        assert cache.candidates(prompt_of(range(257)))[0] == ROOT
        cache.free(2)
        cache.check()

    def test_clear_keeps_what_is_held(self) -> None:
        cache = PageCache(fake_storage(16))
        begin(cache, 1, range(130))
        begin(cache, 2, range(1000, 1130))
        cache.free(1)
        cache.clear()
        assert cache.counts().cached == 0
        assert cache.candidates(prompt_of(range(130))) == (ROOT,)
        assert cache.candidates(prompt_of(range(1000, 1130)))[0].num_tokens == 128
        cache.check()

    def test_prompts_with_media_take_no_part(self) -> None:
        cache = PageCache(fake_storage(16))
        media = PreparedPrompt(tuple(range(130)), token_types=(1, *[0] * 129))
        cache.begin(1, 0, media, 3, cache.candidates(media)[0])
        cache.advance(1, media.token_ids)
        assert cache.candidates(prompt_of(range(130))) == (ROOT,)
        cache.free(1)
        begin(cache, 2, range(130))
        assert cache.candidates(media) == (ROOT,)

    def test_66_root_only_leaves_nothing_behind(self) -> None:
        cache = PageCache(fake_storage(16), RootOnlyPolicy())
        for task in (1, 2):
            assert begin(cache, task, range(130)) is ROOT
            cache.free(task)
            assert cache.counts().cached == 0
        cache.check()


class PageCacheMachine(RuleBasedStateMachine):
    """Random tasks over a small pool; after every step all accounts balance and every hit is exact."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = PageCache(fake_storage(12))
        self.contents: dict[int, list[int]] = {}
        self.lanes = list(range(4))
        self.tasks: dict[int, int] = {}
        self.next_id = 1

    @precondition(lambda self: self.lanes)
    @rule(
        family=st.integers(0, 2),
        length=st.integers(1, 300),
        tail=st.integers(0, 3),
        output=st.integers(0, 90),
    )
    def admit(self, family: int, length: int, tail: int, output: int) -> None:
        tokens = [family] * length + [100 + tail] * tail
        num_pages = self.cache.entitled_pages(len(tokens), output)
        if self.cache.counts().reserved + num_pages > self.cache.capacity:
            return
        prompt = prompt_of(tokens)
        candidate = self.cache.candidates(prompt)[0]
        for index, page in enumerate(candidate.pages):
            assert self.contents[page] == tokens[index * PAGE_SIZE : (index + 1) * PAGE_SIZE]
        self.cache.begin(self.next_id, self.lanes[-1], prompt, num_pages, candidate)
        self.tasks[self.next_id] = self.lanes.pop()
        self._write(self.next_id, tokens[candidate.num_tokens :])
        self.next_id += 1

    @precondition(lambda self: self.tasks)
    @rule(pick=st.integers(0, 3), count=st.integers(1, 80), token=st.integers(0, 2))
    def grow(self, pick: int, count: int, token: int) -> None:
        task = sorted(self.tasks)[pick % len(self.tasks)]
        view = self.cache.view(task)
        self._write(task, [token] * min(count, len(view.pages) * PAGE_SIZE - view.total_len))

    @precondition(lambda self: self.tasks)
    @rule(pick=st.integers(0, 3))
    def end(self, pick: int) -> None:
        task = sorted(self.tasks)[pick % len(self.tasks)]
        self.cache.free(task)
        self.lanes.append(self.tasks.pop(task))

    def _write(self, task: int, tokens: Sequence[int]) -> None:
        view = self.cache.view(task)
        for ordinal, token in enumerate(tokens, start=view.total_len):
            page = view.pages[ordinal // PAGE_SIZE]
            if ordinal % PAGE_SIZE == 0:
                self.contents[page] = []
            self.contents[page].append(token)
        self.cache.advance(task, tokens)

    @invariant()
    def accounts_balance(self) -> None:
        self.cache.check()


TestPageCacheMachine = PageCacheMachine.TestCase
TestPageCacheMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True
)
