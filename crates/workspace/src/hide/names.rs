//! Names of files with secrets.

/// Names of directories with secrets.
const SECRET_DIRS: &[&str] = &[".aws", ".azure", ".gnupg", ".kube", ".ssh"];
/// Names of files with secrets.
const SECRET_FILES: &[&str] = &[
    ".boto",
    ".docker-credentials",
    ".dockercfg",
    ".env",
    ".envrc",
    ".git-credentials",
    ".htpasswd",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".terraformrc",
    ".vault-token",
    "_netrc",
    "application_default_credentials.json",
    "credentials.json",
    "credentials.tfrc.json",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_rsa",
    "kubeconfig",
    "kubeconfig.yaml",
    "kubeconfig.yml",
];
/// Files with secrets, as name of the directory and name of the file.
const SECRET_IN: &[(&str, &str)] = &[
    (".cargo", "credentials"),
    (".cargo", "credentials.toml"),
    (".docker", "config.json"),
    (".gem", "credentials"),
];
/// Endings of files with keys.
const SECRET_ENDINGS: &[&str] = &[
    ".env",
    ".jks",
    ".kdbx",
    ".key",
    ".keystore",
    ".kubeconfig",
    ".p12",
    ".pem",
    ".pfx",
    ".pkcs12",
    ".ppk",
    ".tfstate",
    ".tfstate.backup",
    ".tfvars",
    ".tfvars.json",
];
/// Variants of `.env` and similar files that contain no secrets.
const EXAMPLES: &[&str] = &[
    "default", "defaults", "dist", "example", "sample", "template",
];
/// Endings of data and settings files, whose content is inspected. Programs and documents are not,
/// because a text in them that looks like a secret is usually an example.
const SETTINGS_ENDINGS: &[&str] = &[
    "asc",
    "cer",
    "cfg",
    "cnf",
    "conf",
    "config",
    "crt",
    "http",
    "ini",
    "json",
    "properties",
    "rest",
    "sh",
    "tf",
    "toml",
    "txt",
    "xml",
    "yaml",
    "yml",
];

/// Returns true if an object of that name usually contains secrets. `path` is the whole path,
/// `name` its last component.
pub(super) fn is_secret(path: &[u8], name: &[u8], is_dir: bool) -> bool {
    if is_dir {
        return is_one_of(name, SECRET_DIRS);
    }
    if let Some(variant) = name.strip_prefix(b".env.") {
        return !ends_as_example(variant);
    }
    if let Some(ending) = SECRET_ENDINGS
        .iter()
        .find(|ending| name.len() > ending.len() && name.ends_with(ending.as_bytes()))
    {
        // `example.env`, `terraform.sample.tfvars`
        let stem = &name[..name.len() - ending.len()];
        let may_be_example = ending.starts_with(".env") || ending.starts_with(".tfvars");
        return !(may_be_example && ends_as_example(stem));
    }
    let starts_like_one = matches!(name.first(), Some(b'.' | b'_' | b'a' | b'c' | b'i' | b'k'));
    (starts_like_one && is_one_of(name, SECRET_FILES))
        || is_service_account(name)
        || SECRET_IN.iter().any(|(dir, file)| {
            name == file.as_bytes() && parent_name(path, name) == Some(dir.as_bytes())
        })
}

/// Matches `service-account.json`, `serviceAccountKey.json`, `prod_service_account.json`.
fn is_service_account(name: &[u8]) -> bool {
    let Some(stem) = name.strip_suffix(b".json") else {
        return false;
    };
    let plain: Vec<u8> = stem
        .iter()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .map(u8::to_ascii_lowercase)
        .collect();
    ["serviceaccount", "serviceaccountkey"]
        .iter()
        .any(|end| plain.ends_with(end.as_bytes()))
}

/// Returns true if the content of a file of that name is inspected.
pub(super) fn may_hold_secret(name: &[u8]) -> bool {
    match name.iter().rposition(|byte| *byte == b'.') {
        // `.env.example` is read as well.
        Some(0) | None => true,
        Some(dot) => is_one_of(&name[dot + 1..], SETTINGS_ENDINGS) || name.starts_with(b".env"),
    }
}

/// Returns true if a file of that name may be a certificate as well as a key, so that its content
/// decides.
pub(super) fn may_be_public(name: &[u8]) -> bool {
    name.ends_with(b".pem") || name.ends_with(b".key")
}

fn ends_as_example(variant: &[u8]) -> bool {
    let last = variant.rsplit(|byte| b".-_".contains(byte)).next();
    last.is_some_and(|last| is_one_of(last, EXAMPLES))
}

fn parent_name<'a>(path: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let above = path.strip_suffix(name)?.strip_suffix(b"/")?;
    above.rsplit(|byte| *byte == b'/').next()
}

pub(super) fn is_one_of(name: &[u8], list: &[&str]) -> bool {
    list.iter().any(|known| known.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_and_those_of_examples_are_not() {
        let said = |path: &str| {
            let name = path.rsplit('/').next().unwrap();
            is_secret(path.as_bytes(), name.as_bytes(), false)
        };
        for path in [
            ".envrc",
            "prod.env",
            "infra/terraform.tfstate",
            "terraform.tfstate.backup",
            "prod.tfvars",
            "x.auto.tfvars.json",
            "kubeconfig",
            "staging.kubeconfig",
            ".docker/config.json",
            "home/.docker/config.json",
            ".cargo/credentials.toml",
            "service-account.json",
            "serviceAccountKey.json",
            "prod_service_account.json",
        ] {
            assert!(said(path), "{path}");
        }
        for path in [
            "config.json",
            "docker/config.json",
            "example.env",
            "prod.env.example",
            "terraform.sample.tfvars",
            "example.tfvars",
            "service.json",
            "accounts.json",
            "env",
            "kubeconfig.rs",
            ".env.example",
        ] {
            assert!(!said(path), "{path}");
        }
    }
}
