//! gRPC's frame of a message: a byte that says whether it is compressed, its length in four bytes, the message.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;

const PREFIX: usize = 5;

/// Why the body of a call is not one message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// There is none.
    #[error("there is no message in it")]
    Empty,
    /// It is compressed. Sluice offers no compression.
    #[error("the message is compressed")]
    Compressed,
    /// Its length is not that of the body.
    #[error("the message says that it has {said} bytes, and {there} follow")]
    Length {
        /// What the prefix says.
        said: usize,
        /// What follows it.
        there: usize,
    },
    /// The bytes are not that message.
    #[error("the message cannot be read: {0}")]
    Message(String),
}

/// The frame of a message.
#[must_use]
pub fn frame(message: &impl Message) -> Bytes {
    let mut buffer = BytesMut::with_capacity(PREFIX + message.encoded_len());
    put_prefix(&mut buffer, message.encoded_len());
    buffer.put(message.encode_to_vec().as_slice());
    buffer.freeze()
}

/// The beginning of the frame of a message that goes on with `rest` bytes which are encoded already.
#[must_use]
pub fn frame_of(message: &impl Message, rest: usize) -> Bytes {
    let mut buffer = BytesMut::with_capacity(PREFIX + message.encoded_len());
    put_prefix(&mut buffer, message.encoded_len() + rest);
    buffer.put(message.encode_to_vec().as_slice());
    buffer.freeze()
}

fn put_prefix(buffer: &mut BytesMut, len: usize) {
    buffer.put_u8(0);
    buffer.put_u32(u32::try_from(len).unwrap_or(u32::MAX));
}

/// The bytes of the message in the body of a call.
///
/// # Errors
/// When the body is not one frame.
pub fn message_in(mut body: Bytes) -> Result<Bytes, FrameError> {
    if body.len() < PREFIX {
        return Err(FrameError::Empty);
    }
    if body.get_u8() != 0 {
        return Err(FrameError::Compressed);
    }
    let said = usize::try_from(body.get_u32()).unwrap_or(usize::MAX);
    if said == body.len() { Ok(body) } else { Err(FrameError::Length { said, there: body.len() }) }
}

/// The message in the body of a call.
///
/// # Errors
/// When the body is not one frame, or holds another message.
pub fn message<M: Message + Default>(body: Bytes) -> Result<M, FrameError> {
    M::decode(message_in(body)?).map_err(|error| FrameError::Message(error.to_string()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{FrameError, frame, message};
    use crate::protocol::{HealthCheckResponse, Pod};

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let pod = Pod { pod_json: Bytes::from_static(b"{}") };
        assert_eq!(frame(&pod).as_ref(), b"\0\0\0\0\x04\x0a\x02{}");
        assert_eq!(message(frame(&pod)), Ok(pod));
        assert_eq!(
            message(Bytes::from_static(b"\0\0\0\0\0")),
            Ok(HealthCheckResponse { healthy: false }),
            "no field is a message too"
        );
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let read = |body: &'static [u8]| message::<Pod>(Bytes::from_static(body));
        assert_eq!(read(b""), Err(FrameError::Empty));
        assert_eq!(read(b"\0\0\0\0"), Err(FrameError::Empty));
        assert_eq!(read(b"\x01\0\0\0\0"), Err(FrameError::Compressed));
        assert_eq!(read(b"\0\xff\xff\xff\xff{}"), Err(FrameError::Length { said: 4_294_967_295, there: 2 }));
        assert_eq!(read(b"\0\0\0\0\0{}"), Err(FrameError::Length { said: 0, there: 2 }));
        assert!(matches!(read(b"\0\0\0\0\x02\x0a\x05"), Err(FrameError::Message(_))));
    }
}
