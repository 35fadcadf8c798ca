"""For your tests: brokers in the test's process (`embedded`), clusters in virtual time (`cluster`), a pytest plugin."""
