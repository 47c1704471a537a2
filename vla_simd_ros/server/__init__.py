"""A policy server for robots that speak LeRobot's asynchronous inference protocol."""
