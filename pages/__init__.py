"""The pages of the dashboard: choose, ask, chart, one sentence. No arithmetic, no SQL."""
