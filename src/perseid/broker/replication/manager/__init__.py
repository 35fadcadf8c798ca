"""A broker's part under a controller (the original's ReplicasManager; controller.md §8).

    finding → claiming an id → registering → serving, as the controller says: master or slave

- *finding*: all controllers are asked at once who leads; again when the leader does not answer or says that it leads no
  longer, and each `syncControllerMetadataPeriod`.
- *claiming*: a free id is asked for, written to a file with a check code, and claimed with it; then it is ours.
- *registering*: the controller learns our address, unless a living broker has our id: then somebody copied a disk.
- *serving*: heartbeats go to all controllers; roles come by notices, by answers, and by a look each
  `syncBrokerMetadataPeriod`. A role with a higher epoch than ours counts, nothing else. Nothing waits for a timer
  that an answer could begin.

A broker that its controllers must not elect is *silent*: it sends them no heartbeats.

- It finds itself in sync, and has lost its log (a wiped disk): until it has caught up with the master.
- It finds itself master of an epoch that it led before a restart: what it has of that epoch may be less than its
  replicas have, and it can't begin another one by itself. It lets its controllers know that it was gone (`Knock`), so
  that they elect anew. A master does so, too, when a replica is gone that was perhaps taken in: see `STUCK_MS`.

Until its first role a broker is fenced: no client is served, no name server knows it.

| file | what it does |
|---|---|
| `enrolment` | claiming an id, registering |
| `heartbeats` | what controllers hear of this broker: that it lives, or lived |
| `questions` | who is master? |
| `role`, `ha_address` | becoming master or slave, in an epoch; where the master's HA port is |
| `in_sync` | the set of replicas in sync, as the controllers agree on it |
| `manager` | all of it, for the mode |
"""
