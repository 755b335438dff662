"""Random JSON that resembles requests: what the fuzz tests of the protocols have in common."""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st


def many(default):
    """Settings of a fuzz test; ``NINFER_FUZZ_BODIES=10000 pytest ...`` runs more bodies than ``default``."""
    count = int(os.environ.get("NINFER_FUZZ_BODIES", default))
    return settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))


def words(*known):
    """Short text, often one of ``known``."""
    return st.text(max_size=8) | st.sampled_from(known)


def scalars(text, *, largest=40):
    numbers = st.integers(-3, largest) | st.floats(allow_nan=False, width=32)
    return st.none() | st.booleans() | numbers | text


def values(leaves, keys):
    """Any JSON value of a few levels."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=8,
    )


def bodies(known, *, optional, others):
    """Objects with the members ``known``, perhaps ``optional`` ones, and whatever else ``others`` has."""
    return st.builds(
        lambda known, members: {**members, **known},
        st.fixed_dictionaries(known, optional=optional),
        others,
    )
