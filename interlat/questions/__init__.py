"""Questions with one right answer: data, generation, grading."""
