"""Checkpoints as users have them: LeRobot folders with their processors and tokenizers."""
