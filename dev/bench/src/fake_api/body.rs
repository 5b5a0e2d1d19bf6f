//! The body of an answer.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

/// A whole answer, or the stream of a watch.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;
