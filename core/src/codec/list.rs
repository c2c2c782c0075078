//! List of all codecs, with names, wire codes and properties, and a type that holds any of them.

use super::{
    Codec, CodecParams, CuSzp, DecodeError, Demote, Dense, FzLight, FzNd, FzStatic, Lossless, Lz,
    Mpc, OmpSzp, Raw, Szx, Truncate, TruncateXor, XorLz, ZfpAbs, ZfpRate,
};
use crate::element::{DType, Element, Float, bf16, f16};
use core::any::Any;
use core::marker::PhantomData;

/// Kind of loss that a codec causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// No loss: decoding gives back the bits that were encoded.
    None,
    /// Loss up to the error bound.
    Bound,
    /// Loss that depends on the codec's setting. Calls with such a codec take no error bound.
    Setting,
}

/// Element types that a codec supports.
#[derive(Clone, Copy)]
enum SupportedTypes {
    All,
    Floats,
    Wide,
    F64,
}

/// Properties of a codec that do not depend on its parameters. The methods of [`CodecId`] that
/// return them describe them.
#[derive(Clone, Copy)]
struct Properties {
    loss: Loss,
    is_stable: bool,
    has_lattice: bool,
    is_free: bool,
    is_homomorphic: bool,
    is_in_place: bool,
    takes_shape: bool,
    types: SupportedTypes,
    /// Default and largest setting, for 32-bit and for 64-bit values; 0 if the codec has no
    /// setting.
    settings: [[u16; 2]; 2],
}

/// Properties of a codec that keeps an error bound on the call's lattice and offers nothing else.
const BOUNDED: Properties = Properties {
    loss: Loss::Bound,
    is_stable: true,
    has_lattice: true,
    is_free: false,
    is_homomorphic: false,
    is_in_place: false,
    takes_shape: false,
    types: SupportedTypes::Wide,
    settings: [[0; 2]; 2],
};

/// Properties of a codec that drops low bits, by default half of them.
const TRUNCATING: Properties = Properties {
    loss: Loss::Setting,
    has_lattice: false,
    settings: [[16, 22], [32, 51]],
    ..BOUNDED
};

/// Defines a type that holds any of these codecs. It uses the raw codec for all other identifiers.
macro_rules! any_of {
    ($(#[$doc:meta])* $name:ident<$bound:ident>: $($variant:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        enum $name<T: $bound> {
            $($variant($variant<T>),)*
        }

        impl<T: $bound> $name<T> {
            fn new(id: CodecId, params: &CodecParams) -> Self {
                let params = &CodecParams { codec: id, ..*params };
                match id {
                    $(CodecId::$variant if id.is_for(T::DTYPE) => {
                        Self::$variant($variant::from_params(params))
                    })*
                    _ => Self::Raw(Raw::from_params(params)),
                }
            }

            fn as_dyn(&self) -> &dyn Codec<T> {
                match self {
                    $(Self::$variant(codec) => codec,)*
                }
            }
        }
    };
}

any_of! {
    /// Any codec for 16-bit floats ([`SupportedTypes::Floats`]). The other codecs are not compiled
    /// for these types, because that code would be half of the crate.
    NarrowCodecs<Float>: Raw FzLight FzStatic
}

any_of! {
    /// Codecs for integers: only the raw one.
    IntegerCodecs<Element>: Raw
}

macro_rules! codecs {
    (
        $($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $properties:expr;)*
        => compressed arrays only:
        $($(#[$of_doc:meta])*
        $of_array:ident = $of_code:literal, $of_name:literal, $of_properties:expr;)*
    ) => {
        /// Identifier of a codec.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum CodecId {
            $($(#[$doc])* $variant = $code,)*
            $($(#[$of_doc])* $of_array = $of_code,)*
        }

        impl CodecId {
            /// All codecs of calls and messages. Compressed arrays have them, too.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            /// All codecs of [compressed arrays](mod@crate::compress).
            pub const OF_ARRAYS: &[Self] = &[$(Self::$variant,)* $(Self::$of_array),*];

            /// Returns the name in lower case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    $(Self::$of_array => $of_name,)*
                }
            }

            const fn properties(self) -> Properties {
                match self {
                    $(Self::$variant => $properties,)*
                    $(Self::$of_array => $of_properties,)*
                }
            }

            /// Returns the codec of calls and messages with this wire code.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the codec of compressed arrays with this code.
            #[must_use]
            pub const fn from_array_code(code: u8) -> Option<Self> {
                match code {
                    $($of_code => Some(Self::$of_array),)*
                    _ => Self::from_code(code),
                }
            }

            /// Returns whether the codec is for compressed arrays only. Calls refuse it: it needs
            /// a whole array in memory.
            #[must_use]
            pub const fn is_for_arrays_only(self) -> bool {
                matches!(self, $(Self::$of_array)|*)
            }
        }

        any_of! {
            /// Any codec for floats of 32 or 64 bits.
            FloatCodecs<Float>: $($variant)*
        }
    };
}

impl CodecId {
    /// Returns the kind of loss.
    #[must_use]
    pub const fn loss(self) -> Loss {
        self.properties().loss
    }

    /// Returns whether decoding gives back the bits that were encoded, whatever the bound.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        matches!(self.loss(), Loss::None)
    }

    /// Returns whether encoding decoded values again changes nothing. Otherwise each encoding may
    /// move a value by the bound.
    #[must_use]
    pub const fn is_stable(self) -> bool {
        self.properties().is_stable
    }

    /// Returns whether the codec rounds values to the points of the call's lattice and encodes such
    /// points exactly. The lattice is the same for all ranks and values.
    /// [`Rounding`](crate::Rounding) and error feedback need this.
    #[must_use]
    pub const fn has_lattice(self) -> bool {
        matches!(self.loss(), Loss::Bound) && self.properties().has_lattice
    }

    /// Returns whether encoding and decoding are plain copies. If so, keeping an encoded frame
    /// saves nothing.
    #[must_use]
    pub const fn is_free(self) -> bool {
        self.properties().is_free
    }

    /// Returns whether [`Codec::homomorphic`] returns `Some`.
    #[must_use]
    pub const fn is_homomorphic(self) -> bool {
        self.properties().is_homomorphic
    }

    /// Returns whether the codec combines into a received frame in place: the in-place methods of
    /// [`Homomorphic`](super::Homomorphic) return `Some`.
    #[must_use]
    pub const fn is_in_place(self) -> bool {
        self.properties().is_in_place
    }

    /// Returns whether the codec predicts values from other rows and planes, and so benefits from a
    /// shape ([`Plan::with_shape`](crate::Plan::with_shape)).
    #[must_use]
    pub const fn takes_shape(self) -> bool {
        self.properties().takes_shape
    }

    /// Returns whether the codec supports this type. Calls on other types use the raw codec:
    /// integers, and for most codecs 16-bit floats.
    #[must_use]
    pub const fn is_for(self, dtype: DType) -> bool {
        match self.properties().types {
            SupportedTypes::All => true,
            SupportedTypes::Floats => dtype.is_float(),
            SupportedTypes::Wide => matches!(dtype, DType::F32 | DType::F64),
            SupportedTypes::F64 => matches!(dtype, DType::F64),
        }
    }

    /// Returns the setting for values of this type if the caller requests `requested`; 0 requests
    /// the default. `None` if the codec does not support the requested setting. The default of a
    /// codec without settings is 0.
    #[must_use]
    pub const fn setting(self, dtype: DType, requested: u16) -> Option<u16> {
        let [default, most] = self.properties().settings[matches!(dtype, DType::F64) as usize];
        match requested {
            0 => Some(default),
            _ if requested <= most => Some(requested),
            _ => None,
        }
    }

    /// Makes the codec for one call; the raw codec for types that it does not
    /// [support](Self::is_for), and in place of one that is [for arrays
    /// only](Self::is_for_arrays_only).
    #[must_use]
    pub fn instance<T: Element>(self, params: &CodecParams) -> AnyCodec<T> {
        AnyCodec { codec: ErasedCodec::new(T::DTYPE, self, params), of: PhantomData }
    }
}

/// Any codec for one element type, stored inline.
#[derive(Clone, Copy, Debug)]
pub struct AnyCodec<T: Element> {
    codec: ErasedCodec,
    of: PhantomData<T>,
}

impl<T: Element> AnyCodec<T> {
    /// Returns the raw codec for all operations but averages.
    pub(crate) const fn raw() -> Self {
        Self { codec: ErasedCodec::raw(T::DTYPE), of: PhantomData }
    }

    /// Returns the codec as a trait object.
    #[must_use]
    pub fn as_dyn(&self) -> &dyn Codec<T> {
        self.codec.of()
    }
}

/// Any codec for any element type. A call stores its codec in this type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErasedCodec {
    id: CodecId,
    dtype: DType,
    codec: TypedCodec,
}

/// Function that returns the codec of one type as a trait object. There is one for each type, so
/// that codecs are compiled once, in this crate.
type AsDyn<T> = fn(&TypedCodec) -> &dyn Codec<T>;

impl ErasedCodec {
    /// Makes the codec with this identifier; the raw codec for types that it does not
    /// [support](CodecId::is_for).
    pub(crate) fn new(dtype: DType, id: CodecId, params: &CodecParams) -> Self {
        let codec = TypedCodec::new(dtype, id, params);
        let is_made = id.is_for(dtype) && !id.is_for_arrays_only();
        Self { id: if is_made { id } else { CodecId::Raw }, dtype, codec }
    }

    /// Returns the raw codec for all operations but averages.
    pub(crate) const fn raw(dtype: DType) -> Self {
        Self { id: CodecId::Raw, dtype, codec: TypedCodec::raw(dtype) }
    }

    pub(crate) const fn id(&self) -> CodecId {
        self.id
    }

    pub(crate) const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the codec as a trait object for its element type. Panics for any other type.
    pub(crate) fn of<T: Element>(&self) -> &dyn Codec<T> {
        let Some(as_dyn) = TypedCodec::as_dyn(T::DTYPE).downcast_ref::<AsDyn<T>>() else {
            unreachable!()
        };
        as_dyn(&self.codec)
    }

    /// Returns [`Codec::n_values`] of a payload that this codec or the raw codec encoded, as `id`
    /// says.
    pub(crate) fn n_values(&self, id: CodecId, src: &[u8]) -> Result<usize, DecodeError> {
        if id == self.id {
            self.codec.n_values(src)
        } else {
            TypedCodec::raw(self.dtype).n_values(src)
        }
    }
}

macro_rules! types {
    ($($dtype:ident: $codecs:ident<$type:ident>),*) => {
        /// Any codec of any type.
        #[derive(Clone, Copy, Debug)]
        enum TypedCodec {
            $($dtype($codecs<$type>),)*
        }

        impl TypedCodec {
            fn new(dtype: DType, id: CodecId, params: &CodecParams) -> Self {
                match dtype {
                    $(DType::$dtype => Self::$dtype($codecs::new(id, params)),)*
                }
            }

            #[inline]
            const fn raw(dtype: DType) -> Self {
                match dtype {
                    $(DType::$dtype => Self::$dtype($codecs::Raw(Raw::new())),)*
                }
            }

            fn n_values(&self, src: &[u8]) -> Result<usize, DecodeError> {
                match self {
                    $(Self::$dtype(codec) => codec.as_dyn().n_values(src),)*
                }
            }

            /// Returns the [`AsDyn`] function for this type.
            #[inline]
            fn as_dyn(dtype: DType) -> &'static dyn Any {
                match dtype {
                    $(DType::$dtype => {
                        fn as_dyn(codec: &TypedCodec) -> &dyn Codec<$type> {
                            let TypedCodec::$dtype(codec) = codec else { unreachable!() };
                            codec.as_dyn()
                        }
                        const { &(as_dyn as AsDyn<$type>) }
                    })*
                }
            }
        }
    };
}

types! {
    F32: FloatCodecs<f32>, F64: FloatCodecs<f64>, F16: NarrowCodecs<f16>, Bf16: NarrowCodecs<bf16>,
    I8: IntegerCodecs<i8>, U8: IntegerCodecs<u8>, I16: IntegerCodecs<i16>,
    U16: IntegerCodecs<u16>, I32: IntegerCodecs<i32>, U32: IntegerCodecs<u32>,
    I64: IntegerCodecs<i64>, U64: IntegerCodecs<u64>
}

codecs! {
    /// The values themselves, uncompressed.
    Raw = 0, "raw", Properties {
        loss: Loss::None,
        is_free: true,
        is_homomorphic: true,
        is_in_place: true,
        types: SupportedTypes::All,
        ..BOUNDED
    };
    /// Quantizes, takes 1-D Lorenzo differences, and packs each block of 32 with one bit width.
    /// Reduces without decoding.
    FzLight = 1, "fz-light", Properties {
        is_homomorphic: true,
        types: SupportedTypes::Floats,
        ..BOUNDED
    };
    /// Writes the bytes of fz-light, but adds payloads by unpacking and packing all blocks, as
    /// hZCCL's baseline does.
    FzStatic = 11, "fz-static", Self::FzLight.properties();
    /// The values of fz-light in fewer bytes, by prediction and Huffman codes. Reduces without
    /// decoding to floats.
    Dense = 14, "dense", Properties { is_homomorphic: true, takes_shape: true, ..BOUNDED };
    /// The values of fz-light, predicted in up to three dimensions. Packs the residuals in blocks
    /// like those of fz-light. Reduces without decoding to floats.
    FzNd = 15, "fz-nd", Self::Dense.properties();
    /// Drops the low bits of each value. The setting is the number of dropped bits, by default half
    /// of the value's bits.
    Truncate = 2, "truncate", TRUNCATING;
    /// Stores `f64` as `f32`.
    Demote = 3, "demote", Properties {
        loss: Loss::Setting,
        has_lattice: false,
        types: SupportedTypes::F64,
        ..BOUNDED
    };
    /// XORs each value with the previous one and drops leading zero nibbles. Exact.
    XorLz = 4, "xor-lz", Properties { loss: Loss::None, ..BOUNDED };
    /// Drops leading zero nibbles of each value. Exact. Made for values that are differences, which
    /// the caller has computed ([`InterStep`](crate::InterStep)).
    Lz = 12, "lz", Properties { loss: Loss::None, ..BOUNDED };
    /// Drops low bits as [`Truncate`](Self::Truncate) does and codes the rest as
    /// [`XorLz`](Self::XorLz) does.
    TruncateXor = 5, "truncate-xor", TRUNCATING;
    /// Codes residuals as bit planes without repeated words. Exact. The setting is the distance
    /// from a value to the one that its residual refers to, at most 64. By default the codec finds
    /// the best distance for each chunk.
    Mpc = 6, "mpc", Properties {
        loss: Loss::None,
        settings: [[0, super::mpc::MAX_DIM]; 2],
        ..BOUNDED
    };
    /// Chooses [`XorLz`](Self::XorLz) or [`Mpc`](Self::Mpc) for each chunk, whichever codes a
    /// sample in fewer bits. Exact.
    Lossless = 13, "lossless", Properties { loss: Loss::None, ..BOUNDED };
    /// zfp at a fixed rate, in blocks of four values. The setting is the number of bits per value,
    /// by default 8.
    ZfpRate = 7, "zfp-rate", Properties {
        loss: Loss::Setting,
        is_stable: false,
        has_lattice: false,
        settings: [[8, 32], [8, 64]],
        ..BOUNDED
    };
    /// zfp within a bound, in blocks of four values. Each block keeps the bits that the bound
    /// requires.
    ZfpAbs = 16, "zfp-abs", Properties { is_stable: false, has_lattice: false, ..BOUNDED };
    /// SZx: codes a block of 128 values as its midpoint, or as the leading bits of the differences
    /// to the midpoint.
    Szx = 8, "szx", Properties { is_stable: false, has_lattice: false, ..BOUNDED };
    /// ompSZp: quantizes, and codes differences as bit planes in independent blocks of 32.
    OmpSzp = 9, "ompszp", BOUNDED;
    /// cuSZp 2: quantizes, and codes values or differences as bit planes in blocks of 32.
    CuSzp = 10, "cuszp", BOUNDED;

    => compressed arrays only:
    /// Interpolates between decoded values, from coarse to fine, and codes what that misses with a
    /// table for each context. For [compressed arrays](mod@crate::compress) only.
    Interp = 17, "interp", Properties {
        is_stable: false,
        has_lattice: false,
        takes_shape: true,
        ..BOUNDED
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::Quantum;
    use crate::op::Op;

    #[test]
    fn a_type_that_a_codec_is_for_gets_it() {
        fn check<T: Element>() {
            let params = CodecParams::new(Quantum::LOSSLESS);
            for &id in CodecId::ALL {
                let expected = if id.is_for(T::DTYPE) { id } else { CodecId::Raw };
                assert_eq!(id.instance::<T>(&params).as_dyn().id(), expected, "{:?}", T::DTYPE);
            }
        }
        check::<f32>();
        check::<f64>();
        check::<crate::f16>();
        check::<crate::bf16>();
        check::<i32>();
    }

    #[test]
    fn the_list_says_of_each_codec_what_the_codec_says_of_itself() {
        let params = CodecParams::new(Quantum::new::<f64>(0.1).unwrap()).for_sums_of(2);
        for &id in CodecId::ALL {
            // All codecs support `f64`.
            let codec = id.instance::<f64>(&params);
            assert_eq!(codec.as_dyn().id(), id);
            assert_eq!(CodecId::from_code(id as u8), Some(id));
            assert_eq!(
                codec.as_dyn().homomorphic().is_some(),
                id.is_homomorphic(),
                "{}",
                id.name()
            );
            let codec = codec.as_dyn();
            let in_place = codec.homomorphic().map(|codec| {
                let combine = codec.combine_in_place(&Op::Sum, &mut [], &[]);
                [combine, codec.fold_in_place(&Op::Sum, &mut [], &[])].map(|done| done.is_some())
            });
            let expected = id.is_homomorphic().then_some([id.is_in_place(); 2]);
            assert_eq!(in_place, expected, "{}", id.name());
        }
    }
}
