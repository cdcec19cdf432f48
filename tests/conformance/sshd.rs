//! A real OpenSSH server on loopback, with keys and configuration of its own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Sshd {
    temp: tempfile::TempDir,
    child: Child,
    port: u16,
    user: String,
}

impl Sshd {
    /// Starts a server that lets the current user in with a key made for it.
    pub(crate) fn start() -> Result<Self, String> {
        let sshd = ["/usr/sbin/sshd", "/usr/bin/sshd", "/usr/local/sbin/sshd"]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .ok_or("no OpenSSH server (`apt-get install openssh-server`)")?;
        for program in ["ssh", "ssh-keygen"] {
            if !testkit::has_program(program) {
                return Err(format!("no {program} (`apt-get install openssh-client`)"));
            }
        }
        let say = |error: std::io::Error| error.to_string();
        let temp = tempfile::Builder::new()
            .prefix("glovebox-sshd-")
            .tempdir()
            .map_err(say)?;
        let dir = temp.path();
        for key in ["host", "user"] {
            let status = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.join(key))
                .status()
                .map_err(say)?;
            if !status.success() {
                return Err(format!("ssh-keygen: {status}"));
            }
        }
        fs::copy(dir.join("user.pub"), dir.join("authorized")).map_err(say)?;
        fs::create_dir(dir.join("cache")).map_err(say)?;
        // Where it leaves its privileges; the package makes it at boot only.
        if testkit::is_root() {
            let _ = fs::create_dir("/run/sshd");
            let _ = fs::set_permissions("/run/sshd", fs::Permissions::from_mode(0o755));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(say)?;
        let port = listener.local_addr().map_err(say)?.port();
        drop(listener);
        let path = dir.display();
        // Not the user's own home: what a shell reads there at every login is none of these tests', may take
        // its time, and may be left locked where a login is cut off.
        fs::create_dir(dir.join("home")).map_err(say)?;
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {path}/host\nPidFile none\n\
             AuthorizedKeysFile {path}/authorized\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\n\
             SetEnv HOME={path}/home XDG_CACHE_HOME={path}/cache\n"
        );
        fs::write(dir.join("config"), config).map_err(say)?;
        let log = fs::File::create(dir.join("log")).map_err(say)?;
        let child = Command::new(sshd)
            .args(["-D", "-e", "-f"])
            .arg(dir.join("config"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(say)?;
        let user = user_name()?;
        let server = Self {
            temp,
            child,
            port,
            user,
        };
        server.await_login()?;
        Ok(server)
    }

    fn await_login(&self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if Instant::now() >= deadline {
                return Err(format!("sshd does not listen: {}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let carrier = self.carrier();
        let output = Command::new(&carrier[0])
            .args(&carrier[1..])
            .arg("true")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("cannot log in at loopback: {said} {}", self.log()));
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.temp.path().join("log")).unwrap_or_default()
    }

    /// `ssh` with everything it needs to get in.
    pub(crate) fn carrier(&self) -> Vec<String> {
        let key = self.temp.path().join("user");
        let mut words: Vec<String> = ["ssh", "-F", "/dev/null", "-o", "StrictHostKeyChecking=no"]
            .into_iter()
            .map(str::to_owned)
            .collect();
        for option in [
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
            "IdentitiesOnly=yes",
        ] {
            words.extend(["-o".into(), option.into()]);
        }
        words.extend([
            "-i".into(),
            key.to_string_lossy().into_owned(),
            "-p".into(),
            self.port.to_string(),
        ]);
        words.push(format!("{}@127.0.0.1", self.user));
        words
    }
}

fn user_name() -> Result<String, String> {
    let output = Command::new("id")
        .arg("-un")
        .output()
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
