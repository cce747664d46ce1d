"""Optimizers that torch does not have whole: Muon for matrices with AdamW for everything else."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer


class MuonWithAdamW(Optimizer):
    """Muon (torch.optim.Muon) for hidden matrices, AdamW for embeddings, norms and biases.

    One optimizer to its callers: its parameter groups are those of both, so a schedule moves both
    rates. Source: Muon, https://kellerjordan.github.io/posts/muon; update scale, arXiv 2502.16982.
    """

    def __init__(
        self,
        model: nn.Module,
        embeddings: Iterable[Tensor],
        *,
        matrix_rate: float,
        other_rate: float,
        weight_decay: float,
    ) -> None:
        embedded = {id(parameter) for parameter in embeddings}
        parameters = [p for p in model.parameters() if p.requires_grad]
        matrices = [p for p in parameters if p.ndim == 2 and id(p) not in embedded]
        chosen = {id(parameter) for parameter in matrices}
        others = [p for p in parameters if id(p) not in chosen]
        super().__init__(parameters, {})
        self._parts: tuple[Optimizer, Optimizer] = (
            Muon(
                matrices,
                lr=matrix_rate,
                momentum=0.95,
                weight_decay=weight_decay,
                adjust_lr_fn="match_rms_adamw",
            ),
            AdamW(others, lr=other_rate, betas=(0.9, 0.98), weight_decay=weight_decay),
        )
        self._share_groups()

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every parameter that has a gradient."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for part in self._parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The states of both parts."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share_groups()

    def _share_groups(self) -> None:
        self.param_groups = [group for part in self._parts for group in part.param_groups]
