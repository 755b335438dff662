"""The fairness rules as arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.engine.admission import AdmissionLedger, Entitlement, Incumbent, choose_donors, total

CAPACITY = Entitlement(lanes=4, main_pages=160, state_slots=128)
HEAD = Entitlement(1, 64, 48)
INCUMBENTS = [
    Incumbent(1, Entitlement(1, 64, 32), work=100),
    Incumbent(2, Entitlement(1, 48, 64), work=20),
]


def ledger_with(incumbents: list[Incumbent], capacity: Entitlement = CAPACITY) -> AdmissionLedger:
    ledger = AdmissionLedger(capacity)
    for incumbent in incumbents:
        ledger.admit(incumbent.id, incumbent.entitlement)
    return ledger


def test_10_the_donor_and_borrower_example() -> None:
    ledger = ledger_with(INCUMBENTS)
    assert not ledger.fits(HEAD)
    epoch = ledger.protect(3, HEAD, INCUMBENTS)
    assert epoch.donors == {2}
    assert ledger.may_borrow(Entitlement(1, 24, 40)) is False  # safe later, but does not fit now
    assert epoch.is_safe(Entitlement(1, 24, 40), CAPACITY)
    assert not epoch.is_safe(Entitlement(1, 40, 60), CAPACITY)
    epoch.borrowers[4] = Entitlement(1, 24, 40)
    assert not epoch.is_safe(Entitlement(1, 9, 9), CAPACITY)


def test_11_borrowers_accumulate() -> None:
    capacity = Entitlement(8, 100)
    incumbents = [Incumbent(1, Entitlement(1, 40), 5), Incumbent(2, Entitlement(1, 20), 50)]
    ledger = ledger_with(incumbents, capacity)
    ledger.protect(3, Entitlement(1, 60), incumbents)
    candidate = Entitlement(1, 15)
    assert ledger.may_borrow(candidate)
    ledger.admit(4, candidate)
    assert ledger.fits(candidate)
    assert not ledger.may_borrow(candidate)
    ledger.release(4)
    assert ledger.may_borrow(candidate)


def test_12_later_arrivals_change_neither_donors_nor_head() -> None:
    capacity = Entitlement(8, 100)
    incumbents = [Incumbent(1, Entitlement(1, 40), 5), Incumbent(2, Entitlement(1, 20), 50)]
    ledger = ledger_with(incumbents, capacity)
    before = ledger.protect(3, Entitlement(1, 60), incumbents)
    borrower = Incumbent(4, Entitlement(1, 10), work=1)
    ledger.admit(borrower.id, borrower.entitlement)
    after = ledger.protect(3, Entitlement(1, 60), [*incumbents, borrower])
    assert after is before
    assert (after.head_id, after.donors, set(after.survivors)) == (3, {1}, {2})


def test_an_epoch_ends_with_its_head() -> None:
    capacity = Entitlement(8, 100)
    incumbents = [Incumbent(1, Entitlement(1, 60), 5)]
    ledger = ledger_with(incumbents, capacity)
    ledger.protect(2, Entitlement(1, 50), incumbents)
    ledger.withdraw(7)
    assert ledger.epoch is not None
    ledger.withdraw(2)
    assert ledger.epoch is None
    ledger.protect(3, Entitlement(1, 50), incumbents)
    ledger.release(1)
    ledger.admit(3, Entitlement(1, 50))
    assert ledger.epoch is None


def test_donors_are_the_shortest_prefix_by_work_then_id() -> None:
    incumbents = [Incumbent(i, Entitlement(1, 10), work) for i, work in ((1, 9), (2, 3), (3, 3), (4, 1))]
    capacity = Entitlement(4, 40)
    assert choose_donors(incumbents, Entitlement(1, 10), capacity) == (4,)
    assert choose_donors(incumbents, Entitlement(1, 25), capacity) == (4, 2, 3)
    with pytest.raises(AssertionError, match="empty engine"):
        choose_donors(incumbents, Entitlement(1, 41), capacity)


def test_what_can_never_fit() -> None:
    ledger = AdmissionLedger(CAPACITY)
    assert ledger.is_possible(CAPACITY)
    assert not ledger.is_possible(Entitlement(1, 161))


ENTITLEMENTS = st.builds(Entitlement, st.just(1), st.integers(1, 60), st.integers(0, 60))


@given(
    st.lists(st.tuples(ENTITLEMENTS, st.integers(1, 200)), min_size=1, max_size=8),
    ENTITLEMENTS,
    st.integers(0, 59),
    st.lists(st.tuples(ENTITLEMENTS, st.booleans()), max_size=20),
)
def test_09_when_the_donors_are_gone_the_head_fits(running, head, slack, candidates) -> None:
    """Whatever set of persistent-safe borrowers was admitted, and whoever else has ended meanwhile."""
    used = total(entitlement for entitlement, _ in running)
    larger, smaller = max(used.main_pages, head.main_pages), min(used.main_pages, head.main_pages)
    capacity = Entitlement(20, larger + slack % smaller, max(used.state_slots, head.state_slots) + slack)
    incumbents = [Incumbent(i, entitlement, work) for i, (entitlement, work) in enumerate(running)]
    ledger = ledger_with(incumbents, capacity)
    assert not ledger.fits(head)
    epoch = ledger.protect(100, head, incumbents)
    borrowers: list[int] = []
    for number, (entitlement, ends) in enumerate(candidates, start=101):
        if ledger.may_borrow(entitlement):
            ledger.admit(number, entitlement)
            borrowers.append(number)
        if ends and borrowers:
            ledger.release(borrowers.pop(0))
    for donor in list(epoch.donors):
        ledger.release(donor)
    assert ledger.fits(head)
    ledger.admit(100, head)
    assert ledger.epoch is None
