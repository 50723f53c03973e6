"""What the numbers mean: tables and plain values in, tables and plain values out. No database, no page, no clock.

- `statistics`: medians and ratios with intervals
- `theory`: the ratios that two data sheets allow, and what public measurements say beside them
- `verdict`: where a measured ratio stands against theory
- `norms`: where it stands among healthy operations of the same pair of cards
- `roofline`: the least time that a stage or an operation can take
- `op_diff`: where the time went, operation by operation
"""
