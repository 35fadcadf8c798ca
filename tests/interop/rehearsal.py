"""Every real server and stock client once in one JVM, so that it archives the classes which they load.

A class that stands in the archive is mapped, not read from a jar and verified: the suite starts a hundred servers.
"""

from __future__ import annotations

from pathlib import Path

import parts
import rig
from controllers import Controllers

DUMP_SECONDS = 60.0
LOG = ["-Xlog:disable", "-Xlog:all=warning:stderr"]
"""What the JVM says of classes that it leaves out; the agent's answers are alone on its output."""


def rehearsed(folder: Path) -> None:
    """Make the archive of classes, where there is none yet; the first process does, the others wait."""
    with parts.locked("classes"):
        archive = parts.archive()
        if archive.exists():
            return
        fresh = archive.with_suffix(".part")
        agent = rig.java_agent(folder / "agent", f"-XX:ArchiveClassesAtExit={fresh}", *LOG)
        try:
            _play(agent, folder)
        finally:
            agent.stop(rig.PATIENCE * DUMP_SECONDS)
        if not fresh.exists():
            raise rig.RigError(f"the JVM archived no classes (it has to be of Java 13 at least); log: {agent.log}")
        fresh.rename(archive)


def _play(agent: rig.Agent, folder: Path) -> None:
    """A name server, a controller and a broker; a message there and back; the commands of mqadmin."""
    names = rig.namesrv("java", folder / "namesrv")
    (controller,) = Controllers(folder / "controllers", ["java"]).members
    broker = rig.broker("java", folder / "broker", names.address)
    for server in (names, controller, broker):
        agent("serve", main=rig.MAINS[server.role], conf=str(server.configured()))
    rig.await_registered(names.address, folder.joinpath("broker").name)
    cluster = rig.Cluster("", names.address, broker.address, "broker", folder, names, broker)
    client = rig.Client(agent, cluster)
    client.mqadmin("updateTopic", "-c", cluster.cluster_name, "-t", "Rehearsed", "-r", "1", "-w", "1")
    client.send("Rehearsed", ["a message"])
    assert [m["body"] for m in client.consume("Rehearsed", "rehearsing", 1)] == ["a message"]
    client.close()
