"""What the machines under test ask of their disk, done at once on a simulated one."""

from __future__ import annotations

from perseid.base.machine import DiskFailed, Flush, SaveState
from perseid.sim.disk import SimDisk
from perseid.store.recovery import save_durably


def make_durable(disk: SimDisk, effect: Flush | SaveState) -> None:
    """Then what stands in `then` may follow. OSError when the disk fails, as a test wanted it to."""
    if isinstance(effect, SaveState):
        save_durably(disk, effect.path, effect.data)
        return
    for file in effect.files:
        file.sync()


def failure_of(disk: SimDisk, effect: Flush | SaveState) -> DiskFailed | None:
    """The same; what the machine has to hear of instead, when the disk fails."""
    try:
        make_durable(disk, effect)
    except OSError as error:
        return DiskFailed(effect.path if isinstance(effect, SaveState) else effect.files[0].path, str(error))
    return None
