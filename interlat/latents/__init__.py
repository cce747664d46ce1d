"""What travels between agents: messages, their store, their sources, their alterations."""
