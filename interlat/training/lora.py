"""LoRA: low-rank updates of an actor's linear layers, its markers' embeddings, and its adapter.

Everything else stays as it was. For the checkpoint the updates are merged into the weights, so an
actor trained this way looks like any other.
Source: arXiv 2106.09685.
"""

from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedTokenizerBase

from interlat.chat import BOP, EOP
from interlat.config import TrainConfig
from interlat.models.actor import Actor

LAYERS = "all-linear"
"""peft's name for every linear layer but the output head."""


def add_lora(actor: Actor, config: TrainConfig) -> PeftModel:
    """Freeze an actor's model in place but for new low-rank updates and the rows of its markers.

    The markers may be new to the model; no update of other layers could give them a meaning.
    """
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules=LAYERS,
        trainable_token_indices=marker_ids(actor.tokenizer),
    )
    model = get_peft_model(actor.model, settings)
    assert isinstance(model, PeftModel)
    return model


def marker_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids of the tokens around a message."""
    ids = tokenizer.convert_tokens_to_ids([BOP, EOP])
    assert isinstance(ids, list)
    return ids


def merge(model: PeftModel) -> None:
    """Add the updates to the weights that they belong to and take LoRA's layers out, in place."""
    model.merge_and_unload()
