"""Recordings of runs (rosbag2): read, reported on, and replayed without ROS."""
