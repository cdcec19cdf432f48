//! The text for the inside, as git itself reads it.

use super::*;

fn read(files: &[(&str, &str)], vars: &[(&str, &str)]) -> (tempfile::TempDir, GitSettings) {
    let temp = tempfile::tempdir().unwrap();
    let project = temp.path().join("project");
    fs::create_dir(&project).unwrap();
    for (name, text) in files {
        let path = temp.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.replace("HOME", temp.path().to_str().unwrap())).unwrap();
    }
    let vars: Vec<_> = [("GIT_CONFIG_NOSYSTEM", "1")]
        .iter()
        .chain(vars)
        .copied()
        .collect();
    let host = Surroundings::fixed(temp.path(), &project, &vars);
    let settings = GitSettings::read(&host, &project);
    (temp, settings)
}

/// What git itself makes of the text.
fn value(settings: &GitSettings, key: &str) -> Option<String> {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("config");
    fs::write(&file, &settings.text).unwrap();
    let output = std::process::Command::new("git")
        .args(["config", "--get", "-f"])
        .args([&file, Path::new(key)])
        .output()
        .unwrap();
    output.status.success().then(|| {
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    })
}

#[test]
fn settings_that_change_content_are_carried_and_others_are_not() {
    let carried = "[user]\n\tname = Ada \\\"A\\\" L\n\temail = a@b.c # me\n[Core]\n\tautoCRLF = input\n\tbigFileThreshold = 1m\n\
        [filter \"x y\"]\n\tclean = \"tr a-z A-Z; echo \\\\n\"\n\trequired\n[merge \"m\"]\n\tdriver = m %O %A %B\n[pull]\n\trebase = true\n\
        [lfs]\n\tconcurrentTransfers = 4\n[color \"diff\"]\n\told = red\n";
    let others = "[credential]\n\thelper = store\n[core]\n\teditor = vim\n\thooksPath = /x\n\tsshCommand = ssh -i k\n[alias]\n\tx = !y\n\
        [user]\n\tsigningKey = K\n[commit]\n\tgpgSign = true\n[url \"https://t@h/\"]\n\tinsteadOf = h:\n[http]\n\tproxy = p\n[x]\n\ty = z\n\
        [lfs \"customtransfer.t\"]\n\tpath = /x\n[merge]\n\ttool = vim\n\
        [filter \"secret\"]\n\tclean = curl -H ghp_0123456789abcdefghijABCDEFGHIJ012345\n";
    let (_temp, settings) = read(&[(".gitconfig", &[carried, others].concat())], &[]);
    assert!(settings.signs_commits);
    for (key, want) in [
        ("user.name", Some("Ada \"A\" L")),
        ("user.email", Some("a@b.c")),
        ("core.autocrlf", Some("input")),
        ("filter.x y.clean", Some("tr a-z A-Z; echo \\n")),
        ("filter.x y.required", Some("true")),
        ("merge.m.driver", Some("m %O %A %B")),
        ("pull.rebase", Some("true")),
        ("lfs.concurrenttransfers", Some("4")),
        ("color.diff.old", Some("red")),
        ("commit.gpgsign", Some("false")),
        ("safe.directory", Some("*")),
        ("credential.helper", None),
        ("core.editor", None),
        ("core.hookspath", None),
        ("core.sshcommand", None),
        ("alias.x", None),
        ("user.signingkey", None),
        ("http.proxy", None),
        ("x.y", None),
        ("lfs.customtransfer.t.path", None),
        ("merge.tool", None),
        ("filter.secret.clean", None),
    ] {
        assert_eq!(value(&settings, key).as_deref(), want, "{key}");
    }
    assert!(!settings.text.contains("insteadof"), "{}", settings.text);
}

#[test]
fn files_that_settings_name_come_along() {
    let config = "[core]\n\texcludesFile = ~/ignored\n[commit]\n\ttemplate = HOME/template\n[mailmap]\n\tfile = /no/such\n";
    let (temp, settings) = read(
        &[
            (".gitconfig", config),
            ("ignored", "*.swp\n"),
            ("template", "T\n"),
            (".config/git/attributes", "*.x text\n"),
            (".config/git/ignore", "not this\n"),
        ],
        &[],
    );
    let home = temp.path().join("ignored");
    assert_eq!(settings.excludes_file, Some(home));
    let mut files = settings.files.clone();
    files.sort();
    let want = [
        ("attributes", "*.x text\n"),
        ("ignore", "*.swp\n"),
        ("template", "T\n"),
    ];
    let want = want.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    assert_eq!(files, want);
    let at = |key| value(&settings, key);
    assert_eq!(at("core.excludesfile").unwrap(), format!("{DIR}/ignore"));
    assert_eq!(
        at("core.attributesfile").unwrap(),
        format!("{DIR}/attributes")
    );
    assert_eq!(at("mailmap.file"), None);
}

#[test]
fn includes_count_as_for_git_and_variables_last() {
    let config = "[user]\n\tname = A\n[includeIf \"gitdir:HOME/project/\"]\n\tpath = work\n[includeIf \"onbranch:side\"]\n\tpath = side\n\
        [includeIf \"hasconfig:remote.*.url:https://h.example/**\"]\n\tpath = remote\n";
    let files = [
        (".gitconfig", config),
        ("work", "[user]\n\tname = Work\n"),
        ("side", "[core]\n\teol = crlf\n"),
        ("remote", "[user]\n\temail = h@example\n"),
        ("project/.git/HEAD", "ref: refs/heads/side\n"),
        (
            "project/.git/config",
            "[remote \"o\"]\n\turl = https://h.example/x/y\n[include]\n\tpath = /dev/zero\n",
        ),
    ];
    let (_temp, settings) = read(&files, &[]);
    let at = |settings: &GitSettings, key| value(settings, key);
    assert_eq!(at(&settings, "user.name").as_deref(), Some("Work"));
    assert_eq!(at(&settings, "user.email").as_deref(), Some("h@example"));
    assert_eq!(at(&settings, "core.eol").as_deref(), Some("crlf"));
    let vars = [
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "user.name"),
        ("GIT_CONFIG_VALUE_0", "V"),
        ("GIT_AUTHOR_EMAIL", "author@example"),
    ];
    let (_temp, settings) = read(&files, &vars);
    assert_eq!(at(&settings, "user.name").as_deref(), Some("V"));
    assert_eq!(
        at(&settings, "author.email").as_deref(),
        Some("author@example")
    );
}

#[test]
fn last_value_decides_whether_commits_are_signed() {
    for (config, want) in [
        ("", false),
        ("[commit]\n\tgpgSign\n", true),
        ("[commit]\n\tgpgsign = on\n", true),
        (
            "[commit]\n\tgpgsign = true\n[commit]\n\tgpgsign = false\n",
            false,
        ),
        (
            "[commit \"x\"]\n\tgpgsign = true\n[tag]\n\tgpgsign = true\n",
            false,
        ),
    ] {
        let (_temp, settings) = read(&[(".gitconfig", config)], &[]);
        assert_eq!(settings.signs_commits, want, "{config}");
    }
}
