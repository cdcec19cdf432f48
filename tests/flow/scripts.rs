//! The program that runs scripts, among commands that want to take its place.

use crate::tool_calls;
use serde_json::{Value, json};
use testkit::{Person, has_program, skip};

/// How often a session is started.
const STARTS: usize = 100;

/// Puts its own program over every file that may become the session's, and looks into every process
/// that is one. What it gets it writes to `/tmp`; `twin` says that looking works where it may.
const RACER: &str = r##"
use strict;
my $evil = '/tmp/evil';
open(my $file, '>', $evil) or die; print $file "#!/bin/sh\necho ran > /tmp/planted\nexec cat > /tmp/stolen\n"; close($file);
chmod(0755, $evil);
sub note { my ($name, $text) = @_; open(my $out, '>>', "/tmp/$name"); print $out "$text\n"; close($out); }
my $child = fork();
if (!$child) { $ENV{TWIN} = 1; exec('sleep', '1000'); }
my ($number, $is_told) = (0, 0);
while (1) {
    for my $dir ('/tmp', '/dev/shm', '/var/tmp') {
        opendir(my $at, $dir) or next;
        for my $name (readdir($at)) {
            next unless $name =~ /glovebox-js/;
            my $own = "$dir/own" . $number++;
            link($evil, $own) and rename($own, "$dir/$name");
        }
    }
    opendir(my $proc, '/proc') or next;
    for my $pid (readdir($proc)) {
        next unless $pid =~ /^\d+$/;
        open(my $line, '<', "/proc/$pid/cmdline") or next;
        my $text = <$line> // '';
        my $is_twin = $pid == $child;
        next unless $is_twin || $text =~ /^[^\0]*\0glovebox-script\0/;
        for my $name ('environ', 'maps', 'fd/0') {
            open(my $open, '<', "/proc/$pid/$name") or next;
            # Of one that has just ended some files can be opened, and are empty.
            next unless $name eq 'fd/0' || sysread($open, my $some, 10);
            if (!$is_twin) { note('seen', "$name of $pid"); }
            elsif ($name eq 'environ' && !$is_told++) { note('twin', 'seen'); }
        }
    }
}
"##;

fn call(person: &Person, tool: &str, arguments: &Value) -> Value {
    tool_calls::call(person, tool, arguments).0["data"].clone()
}

#[test]
fn no_command_takes_the_place_of_a_session_or_looks_into_it() {
    if !has_program("perl") {
        skip!("needs perl");
    }
    Person::each(|person| {
        person.write("project/racer.pl", RACER);
        person.line("start -q box").run().expect_code(0);
        let background = json!({ "command": "perl racer.pl", "background": true });
        call(person, "Bash", &background);
        let began = "for i in $(seq 100); do test -e /tmp/twin && exit 0; sleep 0.1; done; exit 1";
        person.script("exec box", began).run().expect_code(0);
        for start in 0..STARTS {
            let run =
                json!({ "source": "6 * 7", "session": format!("s{start}"), "timeout_ms": 20000 });
            let answer = call(person, "RunJS", &run);
            let text = answer["text"].as_str().unwrap_or_default();
            let look = person.script(
                "exec box",
                "ls /tmp; cat /tmp/planted /tmp/stolen /tmp/seen",
            );
            assert!(
                text.starts_with("42\n"),
                "start {start}: {answer} {}",
                look.run()
            );
            let job = &answer["facts"]["job"];
            call(person, "Job", &json!({ "action": "kill", "id": job }));
        }
        let look = "test ! -e /tmp/planted && test ! -e /tmp/stolen && test ! -e /tmp/seen || \
            { cat /tmp/planted /tmp/stolen /tmp/seen; exit 1; }";
        person.script("exec box", look).run().expect_code(0);
        // The twin of the program that was to be planted: it runs, by its own name.
        let twin = "/tmp/evil < /dev/null && cat /tmp/planted";
        let ran = person.script("exec box", twin).run().expect_code(0);
        assert_eq!(ran.out(), "ran\n");
    });
}
