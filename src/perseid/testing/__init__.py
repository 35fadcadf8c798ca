"""For your tests: brokers in this process (`embedded`), brokers in virtual time (`virtual`), a pytest plugin."""
