"""The parts of ``profiles/device_check.py``: sections, and what runs each of them in a process of its own."""
