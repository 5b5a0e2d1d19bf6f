//! The version of the API server.

use std::time::Duration;

use kube::Client;

use super::{ClientError, with_deadline};

/// Version of the API server, as in `/version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// For example 1.
    pub major: u32,
    /// For example 36; suffixes such as `36+` are dropped.
    pub minor: u32,
}

impl ServerVersion {
    /// Asks the server; a part of the version that is no number reads as 0.
    ///
    /// # Errors
    /// When there is no answer in 10 s, or it is a refusal.
    pub async fn fetch(client: &Client) -> Result<Self, ClientError> {
        let info = with_deadline(Duration::from_secs(10), client.apiserver_version())
            .await
            .map_err(ClientError::Version)?;
        Ok(Self { major: leading_number(&info.major), minor: leading_number(&info.minor) })
    }
}

fn leading_number(text: &str) -> u32 {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.get(..digits).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_suffixes_are_read() {
        assert_eq!(leading_number("36"), 36);
        assert_eq!(leading_number("36+gke.1"), 36);
        assert_eq!(leading_number(""), 0);
        assert!(ServerVersion { major: 1, minor: 36 } < ServerVersion { major: 1, minor: 37 });
    }
}
