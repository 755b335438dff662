"""The store alone: exact bytes, least recently used first, safe under threads, descendants stay whole."""

import random
import threading

import pytest

from ninfer_jax.errors import ResponseNotFoundError, UnsupportedFeatureError
from ninfer_jax.server.response_store import ResponseStore, Step, StoredResponse


def record(name, parent=None, size=10, body=5):
    step = Step(parent, b"i" * size, b"o" * size)
    ids = (f"{name}-item",)
    return StoredResponse(name, b"b" * body, step, "key", preserve_thinking=False, output_ids=ids)


def reachable_bytes(store, records):
    """What the accounting should say, counted from the records that are still there."""
    alive, steps = 0, {}
    for each in records:
        try:
            store.get(each.id)
        except ResponseNotFoundError:
            continue
        alive += len(each.body)
        steps.update({id(step): step for step in each.step.lineage()})
    return alive + sum(step.num_bytes for step in steps.values())


def test_bytes_are_those_of_bodies_and_of_every_step_once():
    store = ResponseStore(max_records=10, max_bytes=10_000)
    root = record("root")
    store.put(root)
    assert store.num_bytes == 25
    store.put(record("child", root.step))
    store.put(record("other child", root.step))
    assert store.num_bytes == 3 * 25


def test_a_deleted_parent_stays_for_its_children_only():
    store = ResponseStore(max_records=10, max_bytes=10_000)
    root = record("root")
    child = record("child", root.step)
    store.put(root)
    store.put(child)
    store.delete("root")
    with pytest.raises(ResponseNotFoundError):
        store.get("root")
    with pytest.raises(ResponseNotFoundError):
        store.delete("root")
    assert store.get("child").step.lineage() == [root.step, child.step]
    assert store.num_bytes == 25 + 20
    store.delete("child")
    assert (store.num_bytes, store.num_records) == (0, 0)


def test_a_child_finished_after_its_parent_went_counts_the_past_again():
    store = ResponseStore(max_records=10, max_bytes=10_000)
    root = record("root")
    middle = record("middle", root.step)
    store.put(root)
    store.put(middle)
    store.delete("middle")
    store.delete("root")
    assert store.num_bytes == 0
    store.put(record("late", middle.step))
    assert store.num_bytes == 25 + 20 + 20


def test_the_least_recently_used_goes_first():
    store = ResponseStore(max_records=2, max_bytes=10_000)
    store.put(record("a"))
    store.put(record("b"))
    store.get("a")
    store.put(record("c"))
    with pytest.raises(ResponseNotFoundError):
        store.get("b")
    assert store.get("a")
    assert store.num_records == 2


def test_items_are_found_while_their_response_is_kept():
    store = ResponseStore(max_records=2, max_bytes=10_000)
    store.put(record("a"))
    store.put(record("b"))
    assert store.producer_of("a-item").id == "a"
    store.put(record("c"))
    assert store.producer_of("b-item") is None, "asking for a made it the latest used"
    store.delete("a")
    assert store.producer_of("a-item") is None
    assert store.producer_of("c-item").id == "c"


def test_bytes_make_room_too():
    store = ResponseStore(max_records=10, max_bytes=60)
    for name in "abc":
        store.put(record(name))
    assert (store.num_records, store.num_bytes) == (2, 50)


def test_one_beyond_the_capacity_is_refused_and_evicts_nobody():
    store = ResponseStore(max_records=10, max_bytes=60)
    root = record("root")
    store.put(root)
    with pytest.raises(UnsupportedFeatureError) as refused:
        store.put(record("big", size=30))
    assert (refused.value.code, refused.value.field) == ("response_store_capacity_exceeded", "store")
    with pytest.raises(UnsupportedFeatureError):
        store.put(record("long", root.step, size=20))
    assert (store.num_records, store.num_bytes) == (1, 25)


def test_eight_writers_with_random_deletes_keep_exact_bytes():
    store = ResponseStore(max_records=60, max_bytes=4_000)
    everything, deleted, errors = [], set(), []
    lock = threading.Lock()

    def work(number):
        rng = random.Random(number)
        try:
            for turn in range(150):
                with lock:
                    parent = rng.choice(everything).step if everything and rng.random() < 0.7 else None
                if parent is not None and len(parent.lineage()) > 20:
                    parent = None
                made = record(f"{number}-{turn}", parent, rng.randrange(1, 20), rng.randrange(1, 30))
                store.put(made)
                with lock:
                    everything.append(made)
                    victim = rng.choice(everything).id
                if rng.random() < 0.4:
                    try:
                        store.delete(victim)
                    except ResponseNotFoundError:
                        continue
                    with lock:
                        assert victim not in deleted, "deleted twice: it came back"
                        deleted.add(victim)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(everything) == 8 * 150
    for name in deleted:
        assert store.producer_of(f"{name}-item") is None
        with pytest.raises(ResponseNotFoundError):
            store.get(name)
    assert 0 < store.num_records <= 60
    assert store.num_bytes == reachable_bytes(store, everything) <= 4_000
    for each in everything:
        if each.id not in deleted:
            try:
                store.delete(each.id)
            except ResponseNotFoundError:
                continue
    assert (store.num_records, store.num_bytes) == (0, 0)


def test_nothing_is_lost_while_there_is_room():
    store = ResponseStore(max_records=10_000, max_bytes=1 << 20)

    def work(number):
        for turn in range(200):
            store.put(record(f"{number}-{turn}"))
            store.get(f"{number}-{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (store.num_records, store.num_bytes) == (1600, 1600 * 25)


def test_a_very_long_chain_is_freed_without_recursion():
    store = ResponseStore(max_records=2, max_bytes=1 << 30)
    last = None
    for number in range(20_000):
        made = record(f"r{number}", last, size=1)
        store.put(made)
        last = made.step
    assert store.num_bytes == 2 * 5 + 20_000 * 2
    store.delete("r19999")
    store.delete("r19998")
    assert store.num_bytes == 0
