"""What the numbers say: tables with intervals and paired tests, figures, one page."""
