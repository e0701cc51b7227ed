"""What all tests share."""

import os

from hypothesis import settings

# How long an example takes depends on who else is at work on the machine; that is no property of the code.
settings.register_profile("kittens", deadline=None)
settings.load_profile("kittens")

# Values that the user of this machine tuned are no property of the code either.
os.environ["KITTENS_TUNED"] = ""
