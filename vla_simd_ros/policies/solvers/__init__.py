"""How the step program of a policy is repeated."""
