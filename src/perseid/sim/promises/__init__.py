"""What clients are promised, whatever is played: a family of promises a file.

`linear_log`, `linear_queues`: one order of all that happened explains what clients saw. `timers`: no message comes
before its time.
"""
