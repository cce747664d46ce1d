"""ALFWorld: household tasks in text, on the real engine, with generated or official games."""
