"""PyTorch implementations of policies for training and for fidelity references; torch is optional."""
