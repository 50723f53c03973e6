"""What the pages share: navigation, state in the URL, the store, showing a chart with its table."""
