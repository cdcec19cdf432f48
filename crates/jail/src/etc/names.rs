//! Names below `/etc` that no sandbox sees, regardless of their content.

use std::path::Path;

/// Patterns of paths relative to `/etc`. A star stands for any characters except `/`. A match
/// covers all paths below it.
const NEVER: &[&str] = &[
    // Accounts, and what they may do.
    "*-",
    "shadow*",
    "gshadow*",
    "subuid*",
    "subgid*",
    "sudoers*",
    "doas.conf",
    "security",
    "pam.d",
    "pam.conf",
    // The machine's identity and its mounts.
    "machine-id",
    "hostid",
    "fstab",
    "crypttab",
    "exports",
    "mtab",
    "iscsi",
    "nvme",
    "davfs2",
    "cifs*",
    "autofs*",
    "auto.*",
    "samba",
    // Keys and certificates of its own.
    "ssh/ssh_host_*",
    "ssl/private",
    "pki/*/private",
    "letsencrypt",
    "acme*",
    // Networks.
    "wireguard",
    "openvpn",
    "ipsec.*",
    "strongswan*",
    "swanctl",
    "ppp",
    "NetworkManager",
    "netplan",
    "wpa_supplicant",
    "cloudflared",
    "tailscale",
    "ddclient*",
    "freeradius",
    // Clusters, containers, stores of secrets, what sets machines up.
    "kubernetes",
    "rancher",
    "cni",
    "docker",
    "containers/auth.json",
    "vault*",
    "consul*",
    "nomad*",
    "etcd*",
    "salt",
    "puppet*",
    "chef",
    "ansible",
    "cloud",
    // Monitoring and logs.
    "zabbix*",
    "munin",
    "nagios*",
    "snmp",
    "newrelic*",
    "datadog*",
    "telegraf",
    "fluent*",
    "filebeat",
    "prometheus",
    "grafana",
    "rsyslog*",
    "syslog-ng",
    "logrotate*",
    // Mail, and files with passwords for other machines.
    "exim4",
    "postfix",
    "dovecot",
    "msmtprc",
    "ssmtp",
    "fetchmailrc",
    "netrc",
    "aliases",
    "apt/auth.conf*",
    "mysql/debian.cnf",
    "rsyncd*",
    "mosquitto",
    "asterisk",
    // Services and jobs: their arguments and variables.
    "systemd",
    "init.d",
    "rc*.d",
    "cron*",
    "at.*",
    "anacrontab",
    "sysconfig",
    // The sandbox has its own versions of these files.
    "passwd",
    "group",
    "hosts",
    "hostname",
    "host.conf",
    "resolv.conf",
    "gitconfig",
];

/// Extensions of keys and of files with variables, in any directory.
const NEVER_ENDINGS: [&str; 7] = ["p12", "pfx", "jks", "keytab", "kdbx", "key", "env"];

/// Directory with settings of services, and the one file in it that all programs use.
const DEFAULTS: &str = "default/";
const LOCALE: &str = "default/locale";

/// Returns true for a path relative to `/etc` that is never shown. The caller judges its parents
/// separately.
pub(super) fn is_never_shown(name: &Path) -> bool {
    let name = name.to_string_lossy();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    NEVER.iter().any(|pattern| matches(pattern, &name))
        || NEVER_ENDINGS.contains(&ending)
        || (name.starts_with(DEFAULTS) && name != LOCALE)
}

fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return pattern == name;
    };
    name.strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(after))
        .is_some_and(|between| !between.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_the_machine_alone_are_never_shown() {
        let is_never = |name: &str| is_never_shown(Path::new(name));
        for name in [
            "shadow",
            "shadow-",
            "passwd-",
            "gshadow",
            "sudoers.d",
            "rc5.d",
            "cron.daily",
            "pki/tls/private",
            "ssl/private",
            "ssh/ssh_host_ed25519_key",
            "ssh/ssh_host_rsa_key.pub",
            "containers/auth.json",
            "default/grub",
            "apt/auth.conf.d",
            "app/server.key",
            "app/.env",
            "tls/store.p12",
            "passwd",
            "gitconfig",
        ] {
            assert!(is_never(name), "{name}");
        }
        // Similar names that are shown.
        for name in [
            "shells",
            "php",
            "rc.local",
            "pki/tls/certs",
            "ssl/certs",
            "ssh/ssh_config",
            "containers/policy.json",
            "default/locale",
            "default",
            "apt/sources.list",
            "app/server.crt",
            "environment",
            "tls/store.pem",
            "java-17-openjdk/security",
            "a/shadow",
            "keys",
            "passwdqc.conf",
        ] {
            assert!(!is_never(name), "{name}");
        }
    }
}
