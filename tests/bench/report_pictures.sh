#!/usr/bin/env bash
# A study's report as a browser shows it, to be looked at: wide and narrow, on light and on dark paper, as four pictures.
#
#   tests/bench/report_pictures.sh REPORT.html FOLDER        (needs chromium)
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command -v chromium >/dev/null || { echo "report_pictures.sh: chromium: not found; in Debian it is the package chromium" >&2; exit 2; }
report=$(realpath "$1")
mkdir -p "$2"
for width in 1400 420; do
  for paper in light dark; do
    dark=()
    if [ "$paper" = dark ]; then dark=(--blink-settings=preferredColorScheme=0); fi
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 "${dark[@]}" \
      --window-size="$width,9000" --screenshot="$2/$width-$paper.png" "file://$report" 2>/dev/null
    echo "$2/$width-$paper.png"
  done
done
