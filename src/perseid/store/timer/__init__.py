"""The files of the timer wheel: which messages wait for which time (store.md §12). `timers` is their owner."""
