"""The jobs over topics and store folders: each a function to import and a command (`perseid spark …`, `cli/spark/`).

A function takes the session first, what it works on by keyword, and `on_progress`; it returns a frozen dataclass of
what it did or found (`told()` of it is what `--json` prints), and raises PerseidError for what its caller can mend.
"""
