"""Two executors share a policy: what its blocks cost on either, and where to cut it between them."""
