"""Robot demonstrations on disk in LeRobot's dataset format v3: reading and writing. No ROS, no LeRobot."""
