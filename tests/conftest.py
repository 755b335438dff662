"""What every test shares: hypothesis without time limits, since suites run on busy machines."""

from hypothesis import settings

settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
