"""Closed-loop evaluation: does a policy do what it is told, and what do delays and settings cost it."""
