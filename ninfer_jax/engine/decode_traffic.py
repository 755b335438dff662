"""The bytes that a decode round must move: what bounds its speed on a device of known bandwidth."""

from dataclasses import dataclass

from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.engine.ledger import Deployment, image_bytes, nbytes, page_bytes, state_shapes, weight_shapes
from ninfer_jax.models.base import LayerKind
from ninfer_jax.models.weights import spec_leaves


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one decode round must read or write at least. ``tokens_per_second`` is the rate at which
    memory alone would allow it; nothing was measured."""

    batch: int
    context: int
    weights: int
    kv: int
    state: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.state

    def tokens_per_second(self, bandwidth: int) -> float:
        return self.batch * bandwidth / self.total


def decode_traffic(deployment: Deployment, *, batch: int, context: int) -> Traffic:
    """Every weight once, an embedding row a token, the experts that ``batch`` random tokens choose, the
    live keys and values, and the state images of recurrent models in and out."""
    model = deployment.model
    moved = 0.0
    for spec in spec_leaves(deployment.specs):
        size = float(nbytes(weight_shapes(spec, deployment.weights, deployment.activation)))
        if spec.role == "embedding" and not model.tied_head:
            size *= batch / spec.shape[0]
        elif spec.axes[0] == "experts" and model.experts is not None:
            size *= 1 - (1 - model.experts.top_k / model.experts.count) ** batch
        moved += size
    state = state_shapes(model, deployment.config, deployment.activation)
    is_recurrent = LayerKind.GATED_DELTA_NET in model.layer_kinds
    return Traffic(
        batch,
        context,
        weights=round(moved),
        kv=page_bytes(state) // PAGE_SIZE * (context + 1) * batch,
        state=2 * image_bytes(state) * batch if is_recurrent else 0,
    )
