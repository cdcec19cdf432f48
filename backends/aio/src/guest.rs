//! Installation of the guest's program in a container.

use crate::client::Client;
use crate::failure::{ServiceError, carrier_failed};
use crate::probe::Probe;
use crate::program::{GuestProgram, Placement};
use crate::script::{Answers, check_script, quote};
use crate::wire::FileWrite;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use glovebox_carrier::ConnectFailure;
use glovebox_sandbox::random_hex;
use std::time::Duration;

/// Length of one piece in bytes, if a file is sent in pieces.
const PIECE_BYTES: usize = 512 << 10;
/// Maximum time for an upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(5);

impl Client {
    /// Installs the guest if it is missing. Returns its path.
    pub(crate) async fn install_guest(
        &self,
        session: &str,
        guest: &GuestProgram,
        placement: &Placement,
        probe: &Probe,
    ) -> Result<String, ConnectFailure> {
        let place = format!("{}/guest-{}", probe.guest_dir, guest.sha256());
        if probe.has_guest {
            return Ok(place);
        }
        let bytes = guest.unpack().map_err(ConnectFailure::Final)?;
        let part = format!("{place}.part-{}", random_hex());
        let whole = match self.upload(&part, &bytes, UPLOAD_TIMEOUT).await {
            Ok(()) => Some(
                self.finish_guest(session, guest, &part, &place, bytes.len())
                    .await?,
            ),
            Err(ServiceError::Status { status: 413, .. }) => None,
            Err(error) => return Err(self.not_stored(error)),
        };
        // A proxy may limit or change the body of one request; small pieces of text usually pass.
        let answer = match whole {
            None => Some("mismatch".to_owned()),
            Some(answer) => answer,
        };
        let reason = match answer.as_deref() {
            None => return Ok(place),
            Some("mismatch") => {
                self.write_pieces(&part, &bytes).await?;
                self.finish_guest(session, guest, &part, &place, bytes.len())
                    .await?
            }
            Some(_) => answer,
        };
        match reason {
            None => Ok(place),
            Some(word) => Err(ConnectFailure::Final(self.explain(&word, "", placement))),
        }
    }

    async fn write_pieces(&self, part: &str, bytes: &[u8]) -> Result<(), ConnectFailure> {
        for (index, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            let content = STANDARD.encode(piece);
            // A piece whose response was lost is not sent again: it could be appended twice. If it
            // is missing, the checksum fails.
            let request = FileWrite {
                file: part,
                content: &content,
                encoding: "base64",
                append: index > 0,
            };
            if let Err(error) = self.write_file(&request).await {
                return Err(self.not_stored(error));
            }
        }
        Ok(())
    }

    fn not_stored(&self, error: ServiceError) -> ConnectFailure {
        match error {
            ServiceError::Failed(message) => {
                let what = format!("the guest could not be stored there: {message}");
                ConnectFailure::Final(carrier_failed(self.base_url(), &what))
            }
            error if error.is_absent() => {
                let what = "it takes no files: it has no /v1/file/upload or /v1/file/write";
                ConnectFailure::Final(carrier_failed(self.base_url(), what))
            }
            error => error.into_failure(self.base_url()),
        }
    }

    /// Checks an uploaded file and renames it to its place. Returns a word for the problem, or None
    /// if there is none.
    async fn finish_guest(
        &self,
        session: &str,
        guest: &GuestProgram,
        part: &str,
        place: &str,
        size: usize,
    ) -> Result<Option<String>, ConnectFailure> {
        let nonce = random_hex();
        let call = format!("install_guest {} {} {size}", quote(part), quote(place));
        let script = check_script(&[("n", &nonce), ("h", guest.sha256())], &call);
        let result = self.run_script(session, &script).await?;
        let output = result.stdout.unwrap_or_default();
        let answers = Answers::new(&output, &nonce);
        match (answers.failure(), answers.last("guest")) {
            (Some((word, _)), _) => Ok(Some(word)),
            (None, Some("yes")) => Ok(None),
            (None, _) => {
                let stderr = self.show(&result.stderr.unwrap_or_default());
                let what = format!("its shell did not finish the guest's installation: {stderr}");
                Err(ConnectFailure::Final(carrier_failed(
                    self.base_url(),
                    &what,
                )))
            }
        }
    }
}
