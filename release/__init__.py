"""What is published of Perseid: built, checked, and tried as a user would. `python -m release --help`."""
