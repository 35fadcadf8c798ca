"""Controllers on the simulator's driver, network and disk."""

from typing import Any

from perseid.controller.config import ControllerConfig
from perseid.controller.node import LISTENER, Controller
from perseid.raft.config import RaftConfig
from perseid.sim.driver import NodeDriver
from perseid.sim.net import Network
from perseid.sim.scheduler import US_PER_S, Scheduler

PORT = 9877
NAMES = ("n0", "n1", "n2")
PEERS = ";".join(f"{name}-10.0.3.{number}:{PORT}" for number, name in enumerate(NAMES))


def test_three_controllers_elect_an_active_one_and_another_when_it_is_killed() -> None:
    scheduler = Scheduler(7)
    network = Network(scheduler, lambda what: None)
    drivers: list[NodeDriver] = []

    def build(name: str) -> Any:
        raft = RaftConfig(
            group="g", self_id=name, peers=PEERS, mapped_file_size_for_entry_data=1 << 16,
            mapped_file_size_for_entry_index=32 * 64,
        )  # fmt: skip
        return lambda disk, random: Controller(ControllerConfig(), raft, disk, random)

    for number, name in enumerate(NAMES):
        drivers.append(
            NodeDriver(name, f"10.0.3.{number}", scheduler, network, build(name), {LISTENER: PORT}, lambda what: None)
        )
        drivers[-1].validate_every = 1
        drivers[-1].start()

    def active() -> list[NodeDriver]:
        scheduler.run(scheduler.now_us + 20 * US_PER_S)
        found: list[Any] = [one for one in drivers if one.machine is not None]
        return [one for one in found if one.machine.active]

    (first,) = active()
    first.crash()
    (second,) = active()
    assert second is not first
    first.start()
    assert len(active()) == 1
