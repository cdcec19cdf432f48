#!/bin/sh
# Usage: wordstat.sh [N] < TEXT: the N most frequent words (default 10), with their counts.
set -eu
most=${1:-10}
case $most in
    '' | *[!0-9]*) echo "wordstat: '$most' is not a number" >&2; exit 2 ;;
esac
tr -cs '[:alpha:]' '\n' | sed '/^$/d' |
    sort | uniq -c | sort -k1,1nr -k2,2 | head -n "$most" |
    while read -r count word; do echo "$word $count"; done
