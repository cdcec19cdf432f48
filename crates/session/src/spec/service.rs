//! User settings of a backend on a service: its options, and its key or token.

use super::backend;
use crate::Error;
use crate::host;
use crate::secrets;
use glovebox_sandbox::{Backend, Credential, CredentialSource, SandboxSpec};
use glovebox_settings::{Settings, Surroundings};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Resolves a specification that no sandbox is started with, for requests to the backend's service
/// about its machines.
///
/// # Errors
/// As [`super::resolve_spec`], for flags, options and credential.
pub fn resolve_service(settings: &Settings, host: &Surroundings) -> Result<SandboxSpec, Error> {
    let backend = backend(settings)?;
    let mut spec = SandboxSpec {
        options: options(backend, settings, host),
        credential: credential(backend, settings, host)?,
        ..SandboxSpec::new(backend)
    };
    if backend.takes("carrier") {
        spec.jail.env = host::carrier_environment(host, &host.absolute(Path::new(".")));
    }
    Ok(spec)
}

/// Returns the settings that belong to the backend.
pub(super) fn options(
    backend: Backend,
    settings: &Settings,
    host: &Surroundings,
) -> BTreeMap<String, Vec<String>> {
    let mut options = BTreeMap::new();
    if backend.takes("carrier") && !settings.carrier.value.is_empty() {
        options.insert("carrier".to_owned(), settings.carrier.value.clone());
    }
    for option in backend.options() {
        let Some(found) = settings.backend_options.get(option.name) else {
            continue;
        };
        let value = if option.is_path {
            host.absolute(Path::new(&found.value)).display().to_string()
        } else {
            found.value.clone()
        };
        options.insert(option.name.to_owned(), vec![value]);
    }
    options
}

/// Returns the user's key or token for the backend's service; `None` without one.
pub(super) fn credential(
    backend: Backend,
    settings: &Settings,
    host: &Surroundings,
) -> Result<Option<Credential>, Error> {
    let Some(source) = backend.credential() else {
        return Ok(None);
    };
    let found = settings.backend_options.get(source.file_option);
    let file = found.map(|found| host.absolute(Path::new(&found.value)));
    find_credential(source, file.as_deref(), host)
}

/// Adds the backend's key or token to a specification that was read from a file, because no file
/// stores it.
///
/// # Errors
/// The source cannot be read.
pub fn renew_credential(spec: &mut SandboxSpec, host: &Surroundings) -> Result<(), Error> {
    if let Some(source) = spec.backend.credential() {
        let file = spec.option(source.file_option).first();
        let file = file.map(PathBuf::from);
        spec.credential = find_credential(source, file.as_deref(), host)?;
    }
    Ok(())
}

fn find_credential(
    source: &CredentialSource,
    file: Option<&Path>,
    host: &Surroundings,
) -> Result<Option<Credential>, Error> {
    for variable in source.variables {
        if let Some(text) = host.var(variable) {
            let place = format!("the variable {variable}");
            return read_credential(text.as_encoded_bytes(), &place).map(Some);
        }
    }
    let Some(path) = file else {
        return Ok(None);
    };
    let text = secrets::read_file(path)
        .map_err(|error| Error::io(format!("read {}", path.display()), &error))?;
    read_credential(&text, &format!("the file {}", path.display())).map(Some)
}

fn read_credential(text: &[u8], place: &str) -> Result<Credential, Error> {
    let bad = |reason: String| {
        Error::usage(
            format!("{place} holds no key or token: {reason}"),
            "put the key or token alone in there",
        )
    };
    let text = str::from_utf8(text).map_err(|_| bad("it is not UTF-8".to_owned()))?;
    Credential::new(text).map_err(|error| bad(error.to_string()))
}
