#!/bin/sh
# The test suite: each check runs the program and compares its whole output.
set -u
cd "$(dirname "$0")/.." || exit 2
passed=0
failed=0
check() { # NAME, WANT, GOT
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
        echo "ok    $1"
    else
        failed=$((failed + 1))
        printf 'FAIL  %s\n  want: %s\n  got:  %s\n' "$1" "$2" "$3"
    fi
}
check "counts words, most frequent first" "the 4 dog 2 fox 2" "$(sh wordstat.sh 3 < tests/fox.txt | tr '\n' ' ' | sed 's/ $//')"
check "ignores case" "a 2" "$(echo 'A a' | sh wordstat.sh)"
check "gives nothing for nothing" "" "$(sh wordstat.sh < /dev/null)"
check "refuses what is not a number" "2" "$(sh wordstat.sh many < /dev/null 2> /dev/null; echo $?)"
mkdir -p build && sh wordstat.sh < tests/fox.txt > build/report.txt
check "writes a report" "10" "$(wc -l < build/report.txt | tr -d ' ')"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
