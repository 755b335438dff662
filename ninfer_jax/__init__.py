"""ninfer-jax: an LLM inference server and library on JAX/XLA."""

__version__ = "0.1.0"
