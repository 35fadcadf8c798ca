"""Numbers of a topic's row whose bits mean something."""

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_READ_WRITE = PERM_READ | PERM_WRITE
"""Of `perm`: what may be done with its queues; whether it is a template for topics that a send makes."""

UNIT = 1
UNIT_SUB = 2
"""Of `topicSysFlag`: it was made by a producer, by a consumer in unit mode."""
