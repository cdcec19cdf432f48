//! Files of the project that belong to somebody else: a line says so, and a copy works on them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use testkit::{Person, skip};

#[test]
fn file_of_another_owner_is_named_and_a_copy_works_on_it() {
    let person = Person::myself();
    if !person.is_root() {
        skip!("needs root, which can give files away");
    }
    person.write("project/src/a.txt", "a\n");
    person.write("project/own.txt", "own\n");
    let project = person.project();
    for path in ["src", "src/a.txt"] {
        chown(project.join(path), Some(501), Some(50)).unwrap();
    }
    fs::set_permissions(project.join("src/a.txt"), fs::Permissions::from_mode(0o600)).unwrap();
    let owner = fs::metadata(&project).unwrap().uid();
    let line = |path: &str| {
        format!(
            "glovebox: `{path}` belongs to uid 501, and this sandbox works as uid {owner}: `--workspace copy` works on \
             a copy, or chown it"
        )
    };
    for (script, path) in [
        ("cat src/a.txt", "src/a.txt"),
        ("echo b >> src/a.txt", "src/a.txt"),
        ("touch src/new", "src/new"),
    ] {
        let ran = person.script("run -q", script).run();
        assert!(ran.code != 0 && ran.err().contains(&line(path)), "{ran}");
    }
    // A refusal for another reason has nothing to do with owners.
    let refused = "chmod 0 own.txt; cat own.txt; exit 1";
    let ran = person.script("run -q --apply never", refused).run();
    assert!(!ran.err().contains("belongs to"), "{ran}");
    // What the line says helps, and the file stays whose it is.
    let _ = person
        .script(
            "run -q --workspace copy --apply auto",
            "cat src/a.txt && echo b >> src/a.txt",
        )
        .run()
        .expect_code(0);
    let path = project.join("src/a.txt");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\n");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o777),
        (501, 50, 0o600)
    );
}
