"""POP: messages that are handed out for a time, and seen again unless they are acknowledged in it.

`service` is the fold of the revive log: what is handed out, and until when; `waits` who waits for something to pop;
`order` the queues that are popped in order; `modes` which groups pop; `assignment` whose a queue is.
"""
