"""What operators ask of controllers, and tell them; wherever the active one is."""

from __future__ import annotations

import pytest

from perseid.client import Admin, ClientError, ServerRefused, Session
from perseid.client.controller import ControllerClient, Replica, addresses_of
from perseid.client.errors import NoController
from perseid.verify import Ledger, OutageMonitor, SteadySender
from perseid.wire import controller
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command

from .fake import BROKER, Answer, hang_up, refuse, run, silence
from .fake_controller import FakeController, Group, replica


def one_set() -> controller.ReplicasInfo:
    return controller.ReplicasInfo(
        1, "h:1", 4, 7, [replica(1, "h:1"), replica(3, "h:3")], [replica(2, "h:2", alive=False)]
    )


def test_addresses_are_taken_as_operators_have_them() -> None:
    assert addresses_of("a:1; b:2,c:3;") == ["a:1", "b:2", "c:3"]
    assert addresses_of("n0-a:1;n1-b-c:2;my-host:3") == ["a:1", "b-c:2", "my-host:3"]
    for text in ("", ";", "a", "a:x", ":1"):
        with pytest.raises(ClientError, match="controller"):
            addresses_of(text)


def test_the_active_controller_is_found_and_asked() -> None:
    async def test() -> None:
        group = Group(sets={BROKER: one_set()})
        async with FakeController(group) as first, FakeController(group) as second:
            group.active = second.address
            async with ControllerClient(first.address) as client:
                rows = await client.status()
                assert [(row.address, row.active, row.leader_id) for row in rows] == [(first.address, False, "n1")]
                assert rows[0].peers == (f"n0:{first.address}", f"n1:{second.address}")
                (found,) = await client.replica_sets(["nobody", BROKER])
                assert client.active == second.address
            assert (found.master_id, found.master_address, found.master_epoch, found.sync_epoch) == (1, "h:1", 4, 7)
            assert found.replicas == (
                Replica(1, "h:1", True, True), Replica(2, "h:2", False, False), Replica(3, "h:3", True, True),
            )  # fmt: skip
            assert found.master_alive

    run(test())


def test_an_active_controller_that_changes_or_goes_is_found_again() -> None:
    async def test() -> None:
        group = Group(sets={BROKER: one_set()})
        async with (
            FakeController(group) as first,
            FakeController(group) as second,
            ControllerClient([first.address, second.address]) as client,
        ):
            await client.replica_sets([BROKER])
            group.active = second.address
            assert len(await client.replica_sets([BROKER])) == 1 and client.active == second.address
            second.script[RequestCode.CONTROLLER_GET_SYNC_STATE_DATA] += [hang_up, hang_up]
            assert len(await client.replica_sets([BROKER])) == 1

    run(test())


def test_nobody_active_is_an_error_that_says_who_was_asked() -> None:
    async def test() -> None:
        group = Group()
        async with FakeController(group) as server, ControllerClient(server.address, timeout_ms=1) as client:
            group.active = ""
            with pytest.raises(NoController, match=f"{server.address}.*are more than half"):
                await client.replica_sets([BROKER])
            server.script[RequestCode.CONTROLLER_GET_METADATA_INFO] += [silence]
            assert [row.reachable for row in await client.status()] == [False]

    run(test())


def test_a_master_is_elected_and_refusals_keep_their_code() -> None:
    async def test() -> None:
        group = Group(sets={BROKER: one_set()})
        async with FakeController(group) as server, ControllerClient(server.address) as client:
            found = await client.elect_master(BROKER, 3, cluster="c")
            assert (found.master_id, found.master_address, found.master_epoch, found.changed) == (3, "h:3", 5, True)
            assert not (await client.elect_master(BROKER, 3)).changed
            request = group.elected[0]
            assert (request.cluster_name, request.broker_id, request.designate_elect) == ("c", 3, True)
            for name, number, code in (
                (BROKER, 2, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED),
                ("x", 1, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED),
            ):
                with pytest.raises(ServerRefused) as refused:
                    await client.elect_master(name, number)
                assert refused.value.code == code

    run(test())


def test_settings_and_forgetting() -> None:
    async def test() -> None:
        group = Group(sets={BROKER: one_set()})
        async with FakeController(group) as server, ControllerClient(server.address) as client:
            assert (await client.config(server.address))["controllerType"] == "DLedger"
            await client.update_config(server.address, {"a": "1", "b": "2"})
            assert server.changed_config == [b"a=1\nb=2\n"]
            with pytest.raises(ServerRefused, match="black list"):
                await client.update_config(server.address, {"configStorePath": "/x"})
            await client.clean_brokers(BROKER, [2, 3], cluster="c")
            await client.clean_brokers(BROKER, living=True)
            told = [(r.broker_controller_ids_to_clean, r.cluster_name, r.is_clean_living_broker) for r in group.cleaned]
            assert told == [("2;3", "c", False), (None, None, True)]

    run(test())


def test_epochs_come_from_the_broker() -> None:
    async def test() -> None:
        async with FakeController(Group()) as server, Admin(server.address) as admin:
            server.epochs.epoch_list = [controller.Epoch(1, 0, 60), controller.Epoch(3, 60)]
            found = await admin.broker_epochs(server.address)
            assert (found.broker_id, found.epochs, found.max_offset) == (0, ((1, 0), (3, 60)), 100)
            server.script[RequestCode.GET_BROKER_EPOCH_CACHE] += [refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)]
            with pytest.raises(ServerRefused):
                await admin.broker_epochs(server.address)

    run(test())


def test_a_watch_sees_what_the_controllers_do_about_a_dead_master() -> None:
    async def test() -> None:
        group = Group(sets={BROKER: one_set()})
        told = group.sets[BROKER]
        async with FakeController(group, {"t": 1}) as server:

            def fail(command: Command) -> Answer | None:
                told.in_sync_replicas[0].alive = False
                return Answer(ResponseCode.SERVICE_NOT_AVAILABLE) if told.master_epoch == 4 else None

            def elect(command: Command) -> None:
                told.master_broker_id, told.master_address, told.master_epoch = 3, server.address, 5
                server.epochs.epoch_list = [controller.Epoch(4, 0, 60), controller.Epoch(5, 60)]

            session, ledger = Session(server.address), Ledger("t", "r")
            async with OutageMonitor(session, poll_ms=1, controllers=server.address) as monitor:
                await monitor.prepare("t")
                server.script[RequestCode.SEND_MESSAGE_V2].extend([fail] * 10_000)
                server.script[RequestCode.CONTROLLER_GET_SYNC_STATE_DATA] += [lambda command: None, elect]
                sender = SteadySender(
                    session, ledger, rate=1000, poll_ms=1, observer=monitor, on_ack=lambda entry: sender.stop.set()
                )
                monitor.cause("the test")
                await sender.run()
            outage = monitor.outages[0]
            assert outage.epochs == (4, 5) and outage.cause is not None and outage.cause.what == "the test"
            assert outage.seen["detection"].what == f"controller {server.address} takes broker 1 for dead"
            assert outage.seen["election"].what == f"controller {server.address}: broker 3, epoch 5"
            assert outage.seen["detection"].at <= outage.seen["election"].at

    run(test())
