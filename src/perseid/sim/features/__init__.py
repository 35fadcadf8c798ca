"""Features under faults: one file each, played in every model (`docs/testing.md` has the table).

A feature has clients, a history of what they were told, and promises that follow from it. It knows nothing of the model
that it is played in but a `Stage` (`stage.py`): whom clients can reach, what time it is there, and when something of
what was acknowledged may have gone. Each is drawn for a share of the seeds, by a draw of its own; its clients draw from
streams of their own.
"""
