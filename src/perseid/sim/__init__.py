"""Whole clusters in virtual time: the very nodes that serve the real world, under faults drawn from a seed.

`run(seed)` (`perseid.sim.models.broker.run`) plays one seed: a name server, a broker and clients over simulated
connections and disks, with at least ten faults, and checkers that compare what clients were told with
what they later find. The same seed gives the same run under any hash seed, and on any machine of the same
time zone (index files are named by local time, as the original names them).
"""
