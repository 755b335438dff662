"""Sparse mixtures of experts: routing, and the products of each token with its own experts only."""

from ninfer_jax.kernels.moe.api import Routing, route, sparse_experts

__all__ = ["Routing", "route", "sparse_experts"]
