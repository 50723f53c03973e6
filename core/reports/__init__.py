"""The report of an answer or of pins as one file that needs nothing else: HTML with drawn charts, or Markdown."""
