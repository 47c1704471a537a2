"""A simulated SO-101 arm on a table, with a front and a wrist camera. No ROS in here."""
