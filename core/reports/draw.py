"""The process that draws: Vega-Lite specifications on stdin, their SVG on stdout, both as JSON lists."""

import json
import sys

import vl_convert

if __name__ == "__main__":
    json.dump([vl_convert.vegalite_to_svg(spec) for spec in json.load(sys.stdin)], sys.stdout)
