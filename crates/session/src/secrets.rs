//! Secrets of the user that a sandbox can use but not read: their selection, and their values,
//! which are read from where the user keeps them. No message contains any part of a value.

use crate::Error;
use crate::host::{SandboxView, place_inside};
use glovebox_egress::{Policy, Secret, SecretSource, SecretValue};
use glovebox_proto::Setting;
use glovebox_settings::{Origin, Settings, Surroundings, net_word};
use glovebox_spec::Net;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use zeroize::Zeroizing;

/// Maximum number of bytes read of a file; a value has fewer.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Returns the secrets that the settings ask for, with their values. Empty unless the network is
/// `egress`.
///
/// # Errors
/// A secret requires another network, is for a host that is not allowed, or has a name that is
/// taken; a source cannot be read; a variable for commands contains the value of a secret.
pub(crate) fn resolve(
    settings: &Settings,
    host: &Surroundings,
    policy: &Policy,
) -> Result<Vec<Secret>, Error> {
    if settings.net.value != Net::Egress {
        let mut flags = settings.secrets.iter();
        if let Some(secret) = flags.find(|secret| matches!(secret.origin, Origin::Flag(_))) {
            return Err(Error::usage(
                format!(
                    "the secret `{}` is filled in on the way to a listed host, and the network is `{}`",
                    secret.value.name,
                    net_word(settings.net.value)
                ),
                [
                    Setting::Net.of("egress"),
                    " lets listed hosts through".into(),
                ],
            ));
        }
        return Ok(Vec::new());
    }
    let mut secrets: Vec<Secret> = Vec::new();
    for found in &settings.secrets {
        let mut secret = found.value.clone();
        let name = &secret.name;
        if secrets.iter().any(|other| other.name == *name) {
            return Err(Error::usage(
                format!(
                    "the secret `{name}` is given twice, the second time by {}",
                    found.origin
                ),
                "name all its hosts in one place",
            ));
        }
        if let Some(var) = settings
            .env
            .iter()
            .find(|var| var.value.name == OsStr::new(name.as_str()))
        {
            return Err(Error::usage(
                format!(
                    "`{name}` is a secret ({}) and a variable ({})",
                    found.origin, var.origin
                ),
                "leave the variable out: commands get a placeholder in it",
            ));
        }
        for (rule, port) in secret.hosts() {
            if !policy.opens(rule, port) {
                return Err(Error::usage(
                    format!(
                        "the secret `{name}` is for {rule}, which the sandbox may not reach at port {port}"
                    ),
                    [Setting::Allow.of(rule.to_string()), " opens it".into()],
                ));
            }
        }
        if let SecretSource::File(path) = &mut secret.source {
            *path = host.absolute(path);
        }
        secrets.push(secret);
    }
    read(&mut secrets, host)?;
    for var in &settings.env {
        let held = var.value.value.as_deref();
        let held = held.or_else(|| host.exact_var(&var.value.name));
        let is_in = |secret: &&Secret| {
            let value = secret.value().map(SecretValue::as_bytes);
            held.zip(value).is_some_and(|(held, value)| {
                let mut parts = held.as_bytes().windows(value.len().max(1));
                parts.any(|part| part == value)
            })
        };
        if let Some(secret) = secrets.iter().find(is_in) {
            return Err(Error::usage(
                format!(
                    "the variable `{}` ({}) holds the value of the secret `{}`, and commands would have it",
                    var.value.name.display(),
                    var.origin,
                    secret.name
                ),
                "leave the variable out: commands get a placeholder",
            ));
        }
    }
    Ok(secrets)
}

/// Checks that commands cannot read the files of secrets.
///
/// # Errors
/// Usage error for the first that they can read.
pub(crate) fn check_files(secrets: &[Secret], shown: &SandboxView<'_>) -> Result<(), Error> {
    for secret in secrets {
        let SecretSource::File(path) = &secret.source else {
            continue;
        };
        // A link shown inside reveals nothing if its target is not shown.
        let real = path.canonicalize();
        if let Some(place) = place_inside(shown, real.as_ref().unwrap_or(path)) {
            return Err(Error::usage(
                format!(
                    "the secret `{}` comes from {}, which commands can read at {}",
                    secret.name,
                    path.display(),
                    place.display()
                ),
                "keep the file where the sandbox does not show it",
            ));
        }
    }
    Ok(())
}

/// Reads the values of secrets.
///
/// # Errors
/// The first that cannot be read, or whose value cannot be used.
pub fn read(secrets: &mut [Secret], host: &Surroundings) -> Result<(), Error> {
    for secret in secrets {
        let name = &secret.name;
        let bytes = match &secret.source {
            SecretSource::Env(variable) => {
                let value = host.exact_var(OsStr::new(variable)).ok_or_else(|| {
                    Error::usage(
                        format!(
                            "the secret `{name}` comes from the variable `{variable}`, which is not set"
                        ),
                        "set it where glovebox is called, or leave the secret out",
                    )
                })?;
                Zeroizing::new(value.as_bytes().to_vec())
            }
            SecretSource::File(path) => read_file(path).map_err(|error| {
                Error::io(
                    format!("read the secret `{name}` from {}", path.display()),
                    &error,
                )
                .with_remedy("correct the path, or leave the secret out")
            })?,
        };
        let value = SecretValue::new(&bytes).map_err(|error| {
            Error::usage(
                format!(
                    "the secret `{name}` from {} cannot be used: {error}",
                    secret.source
                ),
                "check what is there",
            )
        })?;
        secret.set_value(value);
    }
    Ok(())
}

pub(crate) fn read_file(path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    // Allocated at full size: a reallocation would leave a copy of the value in freed memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_FILE_BYTES as usize + 1));
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use glovebox_settings::SandboxFlags;

    fn resolved(secret: &str, vars: &[(&str, &str)]) -> Result<Vec<Secret>, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key"), "from-the-file\n").unwrap();
        std::fs::write(dir.path().join("huge"), vec![b'x'; 100_000]).unwrap();
        let host = Surroundings::fixed(dir.path(), dir.path(), vars);
        let mut settings = Settings::default();
        settings.lay_flags(&SandboxFlags {
            net: Some(Net::Egress),
            secrets: vec![secret.parse().unwrap()],
            ..SandboxFlags::default()
        });
        let policy = Policy::new(&["a.test", "*.b.test"], &["bad.b.test"]).unwrap();
        resolve(&settings, &host, &policy).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn values_are_read_from_where_they_are() {
        let read = |secret: &str| {
            let secrets = resolved(secret, &[("VAR", "from-the-variable")]).unwrap();
            String::from_utf8(secrets[0].value().unwrap().as_bytes().to_vec()).unwrap()
        };
        assert_eq!(read("T=env:VAR@a.test"), "from-the-variable");
        assert_eq!(read("T=file:key@a.test,*.b.test,x.b.test"), "from-the-file");
    }

    #[test]
    fn what_cannot_be_is_said_without_the_value() {
        for (secret, told) in [
            ("T=env:NONE@a.test", "`NONE`, which is not set"),
            ("T=env:SHORT@a.test", "shorter than"),
            ("T=env:LINES@a.test", "a line break"),
            ("T=file:none@a.test", "from "),
            ("T=file:huge@a.test", "longer than"),
            (
                "T=env:VAR@c.test",
                "c.test, which the sandbox may not reach",
            ),
            ("T=env:VAR@bad.b.test", "may not reach"),
            ("T=env:VAR@a.test:8443", "at port 8443"),
        ] {
            let vars = [
                ("VAR", "hush-hush-hush"),
                ("SHORT", "hush"),
                ("LINES", "hush\nhush-hush"),
            ];
            let error = resolved(secret, &vars).unwrap_err();
            assert!(
                error.contains(told) && !error.contains("hush"),
                "{secret}: {error}"
            );
        }
    }
}
