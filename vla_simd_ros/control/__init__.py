"""Time and limits between an action chunk and a motor; free of ROS and of the engine."""
