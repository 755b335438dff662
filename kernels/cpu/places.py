"""The memory in which calls of one kernel share their tasks, as both sides of compiled code see it.

Groups of ``JOB_WORDS`` 8-byte words: first what the process says about itself, then the places of jobs.
"""

JOB_WORDS = 16
"""Two cache lines a job: claims and completions of different jobs do not share one."""

PLACES = 8
"""Calls of one kernel that may run at once and share threads; a ninth runs on its own thread alone."""

PLACES_WORDS = (1 + PLACES) * JOB_WORDS

ENTRY_SYMBOL, PLACES_SYMBOL = "ninfer_entry", "ninfer_places"
"""What a kernel's object file exports: its code, and these words."""

ENTRY, NUM_HELPERS = 0, 1
"""Words of the first group: where the kernel's machine code begins, and how many threads may help a call."""
