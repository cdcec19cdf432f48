//! Variables that a project's own file may never set, trusted or not, wherever commands run.
//!
//! Dynamic linkers, interpreters, build tools and clients take code, files and addresses from
//! variables. A project that sets one decides what other programs load, run or talk to. In a native
//! sandbox that reaches no further than the project's own files, but the same line is one flag away
//! from the host. The user can set such variables with `--env` or in the user's own file.

/// Pattern of variable names. Case is ignored, because npm and curl read both forms.
#[derive(Debug, Clone, Copy)]
enum NamePattern {
    /// Whole names, separated by spaces.
    Exact(&'static str),
    /// Beginnings of names, separated by spaces.
    Prefixes(&'static str),
    /// Ends of names, separated by spaces.
    Suffixes(&'static str),
}

use NamePattern::{Exact, Prefixes, Suffixes};

/// Refused names, with the effect of the variable on the programs that read it.
const REFUSED: &[(NamePattern, &str)] = &[
    (
        Prefixes("LD_ DYLD_ GLIBC_ MALLOC_"),
        "the dynamic linker loads code by it",
    ),
    (
        Exact("GCONV_PATH LOCPATH NLSPATH HOSTALIASES RESOLV_HOST_CONF RES_OPTIONS"),
        "the C library loads files by it",
    ),
    (
        Exact("PATH CDPATH FPATH"),
        "it decides which program a name means",
    ),
    (
        Exact(
            "BASH_ENV ENV SHELLOPTS BASHOPTS PS0 PS1 PS2 PS4 PROMPT_COMMAND IFS SHELL \
             GLOBIGNORE FCEDIT INPUTRC HISTFILE ZDOTDIR EXECIGNORE MAILPATH \
             BASH_LOADABLES_PATH POSIXLY_CORRECT BASH_XTRACEFD TMOUT",
        ),
        "shells run or read code by it",
    ),
    (
        Prefixes("BASH_FUNC_ FISH_"),
        "shells take functions from it",
    ),
    (
        Prefixes("PYTHON PYENV_ VIRTUAL_ENV CONDA_ POETRY_ UV_ PDM_ PIPENV_"),
        "Python and its tools load code by it",
    ),
    (
        Prefixes("PIP_ TWINE_ TOX_"),
        "pip and its kin take addresses and files from it",
    ),
    (
        Exact("NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS NODE_REPL_EXTERNAL_MODULE NVM_DIR"),
        "Node.js loads code by it",
    ),
    (
        Prefixes("NPM_ YARN_ PNPM_ BUN_ DENO_ COREPACK_ VOLTA_ ELECTRON_"),
        "JavaScript tools take code and addresses from it",
    ),
    (
        Prefixes("PERL RUBY RBENV_ GEM_ BUNDLE_ BUNDLER_ RAKE"),
        "its interpreter loads code by it",
    ),
    (
        Exact("GEMRC IRBRC PHPRC PHP_INI_SCAN_DIR"),
        "its interpreter reads settings by it",
    ),
    (
        Prefixes("LUA_ TCL R_ JULIA_ GUILE_ COMPOSER_ ERL_ ELIXIR_ MIX_ OCAML CAML_ GHC"),
        "its interpreter loads code by it",
    ),
    (
        Exact("ERLANG_HOME RHOME"),
        "its interpreter loads code by it",
    ),
    (
        Exact("JAVA_TOOL_OPTIONS _JAVA_OPTIONS JAVA_OPTS JAVA_HOME CLASSPATH JAVA_ARGS"),
        "Java loads code by it",
    ),
    (
        Prefixes(
            "JDK_ MAVEN_ MVN M2_ GRADLE_ ANT_ SBT_ KOTLIN_ SCALA_ DOTNET_ CORECLR_ COMPLUS_ \
             NUGET_ MSBUILD MONO_",
        ),
        "Java, .NET and their tools load code by it",
    ),
    (
        Prefixes("GIT_ SSH_ SVN_ HG"),
        "version control runs programs and takes addresses by it",
    ),
    (
        Prefixes("RUSTC RUSTUP_ RUSTDOC CARGO_"),
        "Rust's tools run programs by it",
    ),
    (Exact("RUSTFLAGS CARGO"), "Rust's tools run programs by it"),
    (
        Exact(
            "GOFLAGS GOROOT GOPATH GOBIN GOENV GOPROXY GONOPROXY GOPRIVATE GOSUMDB GONOSUMDB \
             GONOSUMCHECK GOINSECURE GOTOOLCHAIN GOTOOLDIR GOWORK GOMODCACHE GOCACHE \
             GOCACHEPROG GOTMPDIR GOVCS GOAUTH GODEBUG GOEXPERIMENT GOMOD GCCGO GCCGOTOOLDIR",
        ),
        "Go runs programs and takes addresses by it",
    ),
    (Prefixes("CGO_"), "Go runs programs by it"),
    (
        Exact(
            "CC CXX CPP FC F77 LD AR AS NM RANLIB STRIP OBJCOPY OBJDUMP LINKER CFLAGS \
             CXXFLAGS CPPFLAGS FFLAGS LDFLAGS LIBS ARFLAGS MAKE MAKEFLAGS MFLAGS GNUMAKEFLAGS \
             MAKEFILES MAKESHELL COMPILER_PATH LIBRARY_PATH CPATH C_INCLUDE_PATH \
             CPLUS_INCLUDE_PATH OBJC_INCLUDE_PATH GCC_EXEC_PREFIX COLLECT_GCC_OPTIONS LEX \
             YACC M4 AUTOM4TE ACLOCAL_PATH CONFIG_SITE CONFIG_SHELL PKG_CONFIG DISTCC_HOSTS",
        ),
        "compilers and make run programs and read files by it",
    ),
    (
        Prefixes("PKG_CONFIG_ CMAKE_ NINJA_ CCACHE_ SCCACHE_ DISTCC_ BAZEL MESON"),
        "build tools run programs and read files by it",
    ),
    (
        Suffixes("_PROXY _PRELOAD _CA_BUNDLE _CERT_FILE _CAINFO _INDEX_URL"),
        "it leads connections elsewhere, or loads code",
    ),
    (
        Prefixes("SSL_ SSLKEYLOG OPENSSL_ GNUTLS_ CURL_ REQUESTS_ WGET HTTPIE_"),
        "it decides whom connections trust",
    ),
    (
        Exact("CURLOPT_PROXY NETRC"),
        "it decides whom connections trust",
    ),
    (
        Exact(
            "EDITOR VISUAL PAGER MANPAGER BROWSER TERMINAL LESSOPEN LESSCLOSE LESSKEYIN LESS \
             MORE TERMINFO TERMINFO_DIRS TERMCAP VIMINIT EXINIT GVIMINIT MYVIMRC \
             EMACSLOADPATH GREP_OPTIONS TAR_OPTIONS RSYNC_RSH ZIPOPT UNZIP GZIP XZ_OPT",
        ),
        "programs start others, or take options, by it",
    ),
    (
        Prefixes("SUDO_ SYSTEMD_ DBUS_ LESS_ GTK_ QT_ GIO_ GSETTINGS_ PARALLEL DIRENV_"),
        "programs start others, or load code, by it",
    ),
    (
        Exact("HOME TMPDIR TMP TEMP USER LOGNAME PWD OLDPWD"),
        "programs find their settings and files by it",
    ),
    (
        Prefixes("XDG_"),
        "programs find their settings and files by it",
    ),
    (
        Prefixes("DOCKER_ KUBE PODMAN_ CONTAINER_ BUILDAH_ HELM_ TF_ TERRAFORM_ ANSIBLE_ VAULT_"),
        "it decides which machines are reached and with whose rights",
    ),
    (
        Prefixes("AWS_ AZURE_ GCP_ GCLOUD_ GOOGLE_ CLOUDSDK_ BOTO_"),
        "it decides which accounts are used",
    ),
    (Prefixes("GLOVEBOX_"), "it is a setting of Glovebox"),
    (
        Prefixes("ANTHROPIC_ OPENAI_ GEMINI_ OLLAMA_ MISTRAL_ AZURE_OPENAI_"),
        "it decides who thinks for an agent, and with whose key",
    ),
    (
        Prefixes("CC_ CXX_ AR_ CFLAGS_ CXXFLAGS_ LDFLAGS_"),
        "build tools run programs by it",
    ),
    (
        Suffixes("_CC _CXX _CFLAGS _CXXFLAGS _LDFLAGS"),
        "build tools run programs by it",
    ),
];

/// Longest name of a variable.
const MAX_NAME_BYTES: usize = 200;

/// Returns the reason for which a project's own file may not set this variable; `None` if it may.
pub(super) fn refusal_reason(name: &[u8]) -> Option<&'static str> {
    // TRUST: a shell may be the final reader of the name, so only plain names pass.
    let is_plain = name.len() <= MAX_NAME_BYTES
        && name.first().is_some_and(|first| !first.is_ascii_digit())
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if !is_plain {
        return Some("a name has letters, digits and `_`, and begins with no digit");
    }
    let upper = name.to_ascii_uppercase();
    let is_any = |list: &'static str, is_meant: &dyn Fn(&[u8]) -> bool| {
        list.split_ascii_whitespace()
            .any(|known| is_meant(known.as_bytes()))
    };
    let is_meant = |names: &NamePattern| match *names {
        Exact(list) => is_any(list, &|known| known == upper),
        Prefixes(list) => is_any(list, &|known| upper.starts_with(known)),
        Suffixes(list) => is_any(list, &|known| upper.ends_with(known)),
    };
    REFUSED
        .iter()
        .find(|(names, _)| is_meant(names))
        .map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADERS: &str = "LD_PRELOAD ld_preload LD_AUDIT DYLD_INSERT_LIBRARIES GCONV_PATH PATH BASH_ENV \
        ENV SHELLOPTS BASHOPTS PS4 PROMPT_COMMAND IFS PYTHONPATH PYTHONSTARTUP \
        NODE_OPTIONS NODE_PATH PERL5LIB PERL5OPT RUBYOPT RUBYLIB GEM_HOME \
        BUNDLE_GEMFILE JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS \
        GIT_SSH_COMMAND GIT_CONFIG_COUNT SSH_AUTH_SOCK RUSTC_WRAPPER RUSTFLAGS \
        CARGO_HOME GOFLAGS GOPROXY CC CXX LD AR MAKEFLAGS npm_config_registry \
        NPM_CONFIG_PREFIX PIP_INDEX_URL http_proxy HTTPS_PROXY ALL_PROXY SSL_CERT_FILE \
        CURL_CA_BUNDLE EDITOR PAGER VISUAL BROWSER LESSOPEN HOME XDG_CONFIG_HOME \
        TMPDIR GLOVEBOX_STATE OPENAI_BASE_URL ANTHROPIC_API_KEY HOST_CC \
        CC_x86_64_unknown_linux_gnu 1A DOCKER_HOST AWS_PROFILE NIX_SSL_CERT_FILE \
        AWS_CA_BUNDLE CARGO_HTTP_CAINFO GIT_SSL_CAINFO PIP_CERT NODE_EXTRA_CA_CERTS SSL_CERT_DIR";
    const HARMLESS: &str = "A DEBUG CI GREETING NODE_ENV RUST_BACKTRACE RUST_LOG LOG_LEVEL DATABASE_NAME \
        GOAL TZ LANG LC_ALL MY_PATH_COLOR NO_COLOR TEST_SEED PORT _x9 TARGET_URL \
        APP_BASE_URL TEST_API_KEY";

    #[test]
    fn names_that_load_start_or_redirect_are_refused_and_others_are_not() {
        for name in LOADERS.split_ascii_whitespace() {
            assert!(refusal_reason(name.as_bytes()).is_some(), "{name}");
        }
        for name in ["BASH_FUNC_ls%%", "A B", "A-B", "A\u{e4}", "", "A\nB"] {
            assert!(refusal_reason(name.as_bytes()).is_some(), "{name:?}");
        }
        assert!(refusal_reason(b"A\xff").is_some());
        assert!(refusal_reason(&[b'A'; MAX_NAME_BYTES + 1]).is_some());
        for name in HARMLESS.split_ascii_whitespace() {
            assert_eq!(refusal_reason(name.as_bytes()), None, "{name}");
        }
    }
}
