"""Answers and stored rows to the tables that charts take, and the finding that stands over each chart."""
