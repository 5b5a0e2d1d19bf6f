//! Requests that never become a review.

use http::StatusCode;

use super::body::BodyError;
use crate::review::ReviewError;

/// Why a request has no verdict. It is answered with an HTTP error in plain text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("Content-Type: \"{0}\" should be \"application/json\"")]
    ContentType(String),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Review(#[from] ReviewError),
    #[error("could not generate admission response: {0}")]
    Encode(#[from] serde_json::Error),
}

impl RequestError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Body(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(BodyError::Busy) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Body(BodyError::Late) => StatusCode::REQUEST_TIMEOUT,
            Self::ContentType(_) | Self::Body(BodyError::Broken(_)) | Self::Review(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Encode(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
