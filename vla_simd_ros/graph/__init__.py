"""The graph of a policy: tensors with lifetimes and blocks, and the passes that turn it into programs."""
