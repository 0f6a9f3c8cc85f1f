//! prost's codec with small buffers. A gateway has thousands of streams that only wait, and each keeps its buffer.

use prost::Message;
use std::marker::PhantomData;
use tonic::codec::{BufferSettings, Codec as TonicCodec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// Bytes of a stream's initial buffer: more than most messages need. It grows for a larger message.
const BUFFER_BYTES: usize = 1024;
/// Bytes of waiting messages that are sent together.
const TOGETHER_BYTES: usize = 32 * 1024;

/// The codec of all our services.
#[derive(Debug, Clone)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> TonicCodec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER_BYTES, TOGETHER_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER_BYTES, TOGETHER_BYTES))
    }
}
