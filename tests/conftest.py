"""What all tests share."""

from hypothesis import settings

# How long an example takes depends on who else is at work on the machine; that is no property of the code.
settings.register_profile("kittens", deadline=None)
settings.load_profile("kittens")
