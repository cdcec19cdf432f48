PRAGMA foreign_keys=OFF;
PRAGMA user_version=1;
BEGIN TRANSACTION;
CREATE TABLE session (
                 id TEXT PRIMARY KEY, state TEXT NOT NULL, task TEXT NOT NULL, model TEXT NOT NULL,
                 placement TEXT NOT NULL, sandbox TEXT, project BLOB NOT NULL,
                 created INTEGER NOT NULL, updated INTEGER NOT NULL) STRICT;
INSERT INTO session VALUES('s-8407mvpwvb','completed','write notes','replay:recorded.jsonl','sandbox',NULL,CAST('@PROJECT@' AS BLOB),1700000038243,1700000038563);
CREATE TABLE event (
                 session TEXT NOT NULL REFERENCES session(id) ON DELETE CASCADE, seq INTEGER NOT NULL,
                 at INTEGER NOT NULL, version INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
                 PRIMARY KEY (session, seq)) STRICT, WITHOUT ROWID;
INSERT INTO event VALUES('s-8407mvpwvb',1,1700000038545,1,'started','{"type":"started","task":"write notes","model":"replay:recorded.jsonl","placement":"sandbox","sandbox":"agent-wv1p93hwpr","own_sandbox":"agent-wv1p93hwpr","system":"You are a software engineer at work on a project.","tools":["Bash","Job","Read","Write","Edit","Delete","List","Glob","Grep","Code","RunJS"],"phase":null}');
INSERT INTO event VALUES('s-8407mvpwvb',2,1700000038546,1,'turn_started','{"type":"turn_started","turn":1}');
INSERT INTO event VALUES('s-8407mvpwvb',3,1700000038546,1,'answered','{"type":"answered","turn":1,"parts":[{"kind":"call","id":"c0","name":"Write","arguments":{"path":"notes.txt","content":"kept\n"}}],"stop":"done","usage":null,"cost_usd":null}');
INSERT INTO event VALUES('s-8407mvpwvb',4,1700000038546,1,'call_started','{"type":"call_started","id":"c0","tool":"Write","arguments":{"path":"notes.txt","content":"kept\n"}}');
INSERT INTO event VALUES('s-8407mvpwvb',5,1700000038548,1,'call_finished','{"type":"call_finished","id":"c0","tool":"Write","text":"[notes.txt written anew: 1 lines, 5 bytes]","is_error":false,"facts":{"path":"notes.txt","is_new":true,"bytes":5,"call":"call-ewp2yj9g1w"},"diff":"@@ -0,0 +1 @@\n+kept\n","wall_ms":0}');
INSERT INTO event VALUES('s-8407mvpwvb',6,1700000038550,1,'turn_started','{"type":"turn_started","turn":2}');
INSERT INTO event VALUES('s-8407mvpwvb',7,1700000038550,1,'answered','{"type":"answered","turn":2,"parts":[{"kind":"call","id":"c1","name":"Bash","arguments":{"command":"cat notes.txt"}}],"stop":"done","usage":null,"cost_usd":null}');
INSERT INTO event VALUES('s-8407mvpwvb',8,1700000038550,1,'call_started','{"type":"call_started","id":"c1","tool":"Bash","arguments":{"command":"cat notes.txt"}}');
INSERT INTO event VALUES('s-8407mvpwvb',9,1700000038563,1,'call_finished','{"type":"call_finished","id":"c1","tool":"Bash","text":"kept\n[exit code 0, 0.0 s, job 2]","is_error":false,"facts":{"job":2,"running":false,"output_bytes":5,"truncated":false,"left_out_bytes":0,"exit_code":0,"wall_ms":3,"cpu_ms":2,"max_rss_kib":3048,"stdout_bytes":5,"stderr_bytes":0,"left_running":0,"timed_out":false,"oom":false,"call":"call-r74ez14nmg"},"wall_ms":12}');
INSERT INTO event VALUES('s-8407mvpwvb',10,1700000038563,1,'turn_started','{"type":"turn_started","turn":3}');
INSERT INTO event VALUES('s-8407mvpwvb',11,1700000038563,1,'answered','{"type":"answered","turn":3,"parts":[{"kind":"text","text":"It is written."}],"stop":"done","usage":null,"cost_usd":null}');
INSERT INTO event VALUES('s-8407mvpwvb',12,1700000038563,1,'ended','{"type":"ended","ending":"completed","message":"It is written.","turns":3,"usage":null,"uncounted_answers":3,"cost_usd":null}');
COMMIT;
