"""Agents that talk in hidden states: collect, send, read and judge latent messages.

Shapes stand in names, last axes last: `hidden_LD`, `embeds_BTD`, `logits_NV`.

    B  batch            T  tokens of a conversation     V  vocabulary
    L  message rows     K  steps of a compressed message
    D  width (hidden size)          N  supervised positions

Words: a *sender* thinks about a task, its last-layer states are the *message*; an *actor* reads the
message through its *communication adapter* and acts. A *plan* is the same message as text.
"""

__version__ = "0.1.0"
