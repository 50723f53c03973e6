"""One module per question: a selection goes in, an answer with its headline sentence comes out.

Every answer is a dict of JSON values (no NaN: what is missing is None). A page, `--json` and the report show the same
dict. Import the module that answers the question, not this package: `two`, `catalogue` and `selection`'s parsing
need no database, and only what is imported is paid for.
"""
