"""Drawn inputs: the same ones in each run (`make fuzz` and `make sim` draw new ones), and without deadlines: a busy
machine is no defect."""

from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")
