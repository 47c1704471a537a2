"""The ``vla_simd`` command."""
