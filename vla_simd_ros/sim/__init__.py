"""The simulated robot and cameras of the demo."""
