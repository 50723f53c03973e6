"""Tables to pictures: `DataFrame -> alt.Chart`, one function per chart, one visual language (`theme`)."""
