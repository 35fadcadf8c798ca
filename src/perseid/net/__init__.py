"""The real world for nodes: sockets, timers and the I/O thread. `driver.Driver` runs one node."""
