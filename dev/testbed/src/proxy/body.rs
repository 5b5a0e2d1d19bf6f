//! The body of an answer.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

/// Body of an answer: a buffer or a stream that may break off.
pub(super) type Body = UnsyncBoxBody<Bytes, anyhow::Error>;
