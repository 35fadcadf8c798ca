"""Seeds that once failed, each with what was wrong. They stay in the suite.

A seed is a regression only as long as it draws the same faults: what it found is said in words, so that a
test of its own can stand beside it.
"""

REGRESSIONS = {
    6: "an old log file that could not be removed (EIO) ended the broker with an unexpected exception",
    25: "after a failed fsync the restart believed the page cache: acknowledged messages went with the next power cut",
    29: "a restart did not sync the folders of files that an earlier life had created",
    51: "the folder of a consume queue was not synced by a restart, and its checkpoint said that it was durable",
    64: "a delayed message waited for ever after the clock had gone back",
    81: "a header that is not UTF-8 was logged as a failure of ours",
    1673: "a queue's file that was made ahead, for a message that then found no room, let the one before it be removed",
    7153: "a false alarm: a late repeat whose first copy had gone with an old log file was taken for one out of order",
    12572: "of a record that was never flushed, a power cut spoilt the last byte alone, a property's end: it was read",
    17883: "a start that made a file in a folder of a start that had failed did not sync that folder's parents",
}

REGRESSIONS |= {
    60: "a false alarm: what a dead master had sent came to a slave only after the master's next start",
    1138: "a false alarm: a slave's last record had been removed, though its log ended where the master's begins",
    1306: "a false alarm: a stranger at the HA port claimed to have all, and was believed, as anybody there is",
    10345: "a slave's checkpoint called a log durable that had only begun, elsewhere than at 0",
    11091: "a false alarm: a slave was refused for a file that a power cut then brought back",
    8779: "a slave that reports only what is durable waited for the clock to make it so",
    4562: "a slave whose log a power cut had emptied, but for its file, could not begin elsewhere",
    1647: "an empty slave began at the last file, and its reports acknowledged messages of the file before",
}

IN_TRANSACTIONS = {
    2143: "a false alarm: a crash forgot that a half was committed, and of two copies each counted as the other one",
}
"""The same with transactions."""

REPLICATED = {2: 2, 10: 2, 24: 2, 28: 2, 163: 2, 984: 3, 10070: 1}
"""The same with slaves: seed → how many.

2: a window smaller than a record; 10: a queue's file was made after the log was written, and there was no room; 24:
an empty log kept the place where it was told to begin; 28: offsets that the master had forgotten stayed; 163: what
the log ends with was not known after a recovery that read nothing; 984: a queue's file was removed before a unit of
the next was durable, and a power cut took that, so that the queue began at 0 again; 10070: the request of a slave
with haReportDurableOnly acknowledged what was not yet durable.
"""

WHOLE = {
    6070: "a new master with SYNC_FLUSH showed readers less than they had seen, until its first flush was over",
    6078: "a replica whose log began with the last file had reported it, and its next life took it for lost",
}
"""The same of whole clusters."""

DRAWN = {
    730005: "a false alarm: a master with minInSyncReplicas counts and awaits whom it is about to propose, as well",
    8300028: "a false alarm: a broker that was asked to stop, and could not save its topics, ended because of its disk",
    8100308: "a controller that came back while nothing was appended never learned what was committed",
    8300018: "a topic's maker, who asked again because the answer was lost, was refused for ever by the next master",
    8300050: "a false alarm: a topic went with its master before its first copy, and a send made it anew, of no kind",
    9400025: "a batch queue, begun anew by a record that went with the power, kept none of its units, and stayed empty",
    881200124: "a false alarm: a disk was wiped that a decision on its way to a quorum made the only one in sync",
    7000016: "a group that had read from a master cut off committed that to the next one, which was elected again",
}
"""The same, as they are drawn."""

IN_SWARMS = {
    731003000: "a false alarm: nobody wiped a broker that had what all in sync had lost with their power",
}
"""The same, as swarms drew them before they had kinds of fault of their own, with features."""

OF_SLAVES_IN_SWARMS = {
    289409250541: "a full disk had a next file of the timer log, and no unit in it: all before it went, with the end",
}
"""Of the model with slaves, as swarms draw them."""

WITH_RARITIES = {
    60190: "a disk that failed within a cut of the log ended the broker as what nobody had thought of",
    722545250124: "a false alarm: a broker that was shutting down when all faults healed was never started again",
    722545250051: "a false alarm: a master cut off told of what the one that had begun with the last file never had",
    265253250024: "a claim that was not needed any more, and that the disk did not remove, ended the broker",
}
"""The same, with those."""

TIMED = {
    55: "a log was cut with a checkpoint of the timers on its way to the disk: a start trusted units that were gone",
    108: "a slave reckoned from another time than its master when a message rolls, and dropped it too early",
    138: "a master an hour ahead took messages in too late: they waited in its present, an hour off for the next",
    289: "an old master had a message in an earlier slot than the new one, and dropped it as delivered",
}
"""The same, as they are drawn: with messages for a time."""

FEATURED = {
    ("ha", 732000271): "a log was cut before the record that began a queue anew: its old messages were not shown again",
    ("broker", 9100020): "more time for a message whose pop a power cut took passed over those before it",
    ("ha", 9100005): "a false alarm: a master that had lost a mapping took logical queues for physical ones",
    ("ha", 43000022): "a false alarm: a master that others had replaced answered, and was a slave when that came",
    ("ha", 9300020): "a false alarm: who was elected again acknowledged what it had taken with enough in sync",
    ("ha", 9300007): "a false alarm: the last look was at a slave that had begun late",
}
"""Model and seed: below 9300000 with static topics alone, below 10000000 with all that the model has, else as drawn."""
