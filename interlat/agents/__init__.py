"""Agents at work: collecting messages, acting, playing episodes."""
