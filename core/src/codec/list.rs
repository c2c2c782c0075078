//! The list of codecs: their names, wire codes and properties, and any of them behind one type.

use super::{
    Codec, CodecParams, CuSzp, DecodeError, Demote, Dense, FzLight, FzNd, FzStatic, Lossless, Lz,
    Mpc, OmpSzp, Raw, Szx, Truncate, TruncateXor, XorLz, ZfpRate,
};
use crate::element::{DType, Element, Float, bf16, f16};
use core::any::Any;
use core::marker::PhantomData;

/// What a codec loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Nothing: decoding gives back the bits that were encoded.
    None,
    /// What the bound allows.
    Bound,
    /// What its setting says, whatever a bound would: a call by it has none.
    Setting,
}

/// Of which types the values are that a codec codes.
#[derive(Clone, Copy)]
enum SupportedTypes {
    All,
    Floats,
    Wide,
    F64,
}

/// What is true of a codec whatever it is made from.
#[derive(Clone, Copy)]
struct Properties {
    loss: Loss,
    /// Encoding what was decoded changes nothing.
    is_stable: bool,
    /// What it encodes lossily becomes points of the lattice of the call.
    has_lattice: bool,
    is_free: bool,
    is_homomorphic: bool,
    is_in_place: bool,
    takes_shape: bool,
    types: SupportedTypes,
    /// Default and largest setting for values of 32 bits, and of 64; 0 if it has none.
    settings: [[u16; 2]; 2],
}

/// Of a codec that keeps a bound and has nothing else.
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

/// Of a codec that drops low bits: by default half of them.
const TRUNCATING: Properties = Properties {
    loss: Loss::Setting,
    has_lattice: false,
    settings: [[16, 22], [32, 51]],
    ..BOUNDED
};

/// A type that holds any of these codecs, and for others the raw one.
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
    /// Any of the codecs of floats of 16 bits ([`SupportedTypes::Floats`]): compiled for them, the others
    /// would be half of the crate.
    NarrowCodecs<Float>: Raw FzLight FzStatic
}

any_of! {
    /// The codec of integers.
    IntegerCodecs<Element>: Raw
}

macro_rules! codecs {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, $properties:expr;)*) => {
        /// A codec, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum CodecId {
            $($(#[$doc])* $variant = $code,)*
        }

        impl CodecId {
            /// Every codec.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in lower case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            const fn properties(self) -> Properties {
                match self {
                    $(Self::$variant => $properties,)*
                }
            }

            /// The codec with this wire code.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        any_of! {
            /// Any of the codecs of floats.
            FloatCodecs<Float>: $($variant)*
        }
    };
}

impl CodecId {
    /// What it loses.
    #[must_use]
    pub const fn loss(self) -> Loss {
        self.properties().loss
    }

    /// Whether decoding gives back the bits that were encoded, whatever the bound.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        matches!(self.loss(), Loss::None)
    }

    /// Whether encoding what was decoded changes nothing. Where it does, values that are encoded
    /// again and again may move by the bound each time.
    #[must_use]
    pub const fn is_stable(self) -> bool {
        self.properties().is_stable
    }

    /// Whether it rounds values to the points of the call's lattice, all ranks and values the same,
    /// and encodes such points exactly: what [`Rounding`](crate::Rounding) and error feedback need.
    #[must_use]
    pub const fn has_lattice(self) -> bool {
        matches!(self.loss(), Loss::Bound) && self.properties().has_lattice
    }

    /// Whether encoding and decoding are copies: what was encoded once need not be kept.
    #[must_use]
    pub const fn is_free(self) -> bool {
        self.properties().is_free
    }

    /// Whether [`Codec::homomorphic`] gives something.
    #[must_use]
    pub const fn is_homomorphic(self) -> bool {
        self.properties().is_homomorphic
    }

    /// Whether it combines into a received frame itself: methods of
    /// [`Homomorphic`](super::Homomorphic) that do it in place give something.
    #[must_use]
    pub const fn is_in_place(self) -> bool {
        self.properties().is_in_place
    }

    /// Whether it predicts values from those in other rows and planes, and so has use for a shape:
    /// [`Plan::with_shape`](crate::Plan::with_shape).
    #[must_use]
    pub const fn takes_shape(self) -> bool {
        self.properties().takes_shape
    }

    /// Whether it codes values of this type. Calls on others go by the raw codec: integers, and
    /// with most codecs floats of 16 bits.
    #[must_use]
    pub const fn is_for(self, dtype: DType) -> bool {
        match self.properties().types {
            SupportedTypes::All => true,
            SupportedTypes::Floats => dtype.is_float(),
            SupportedTypes::Wide => matches!(dtype, DType::F32 | DType::F64),
            SupportedTypes::F64 => matches!(dtype, DType::F64),
        }
    }

    /// The setting of a call on values of this type that asks for `asked`, 0 being the default;
    /// `None` if the codec takes no such setting. Of a codec that has none, 0.
    #[must_use]
    pub const fn setting(self, dtype: DType, asked: u16) -> Option<u16> {
        let [default, most] = self.properties().settings[matches!(dtype, DType::F64) as usize];
        match asked {
            0 => Some(default),
            _ if asked <= most => Some(asked),
            _ => None,
        }
    }

    /// Makes the codec for one call; the raw one for types that this is not [for](Self::is_for).
    #[must_use]
    pub fn instance<T: Element>(self, params: &CodecParams) -> AnyCodec<T> {
        AnyCodec { codec: ErasedCodec::new(T::DTYPE, self, params), of: PhantomData }
    }
}

/// Any codec of the type's, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct AnyCodec<T: Element> {
    codec: ErasedCodec,
    of: PhantomData<T>,
}

impl<T: Element> AnyCodec<T> {
    /// The raw codec for anything but averages.
    pub(crate) const fn raw() -> Self {
        Self { codec: ErasedCodec::raw(T::DTYPE), of: PhantomData }
    }

    /// The codec behind its trait.
    #[must_use]
    pub fn as_dyn(&self) -> &dyn Codec<T> {
        self.codec.of()
    }
}

/// Any codec of any type: what a call keeps whatever its values are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErasedCodec {
    id: CodecId,
    dtype: DType,
    codec: TypedCodec,
}

/// The codec of this type behind its trait: a function for each type, so that codecs are compiled
/// here, once.
type AsDyn<T> = fn(&TypedCodec) -> &dyn Codec<T>;

impl ErasedCodec {
    /// The codec of this name; the raw one for types that it is not [for](CodecId::is_for).
    pub(crate) fn new(dtype: DType, id: CodecId, params: &CodecParams) -> Self {
        let codec = TypedCodec::new(dtype, id, params);
        Self { id: if id.is_for(dtype) { id } else { CodecId::Raw }, dtype, codec }
    }

    /// The raw codec for anything but averages.
    pub(crate) const fn raw(dtype: DType) -> Self {
        Self { id: CodecId::Raw, dtype, codec: TypedCodec::raw(dtype) }
    }

    pub(crate) const fn id(&self) -> CodecId {
        self.id
    }

    pub(crate) const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The codec behind its trait, of its type.
    pub(crate) fn of<T: Element>(&self) -> &dyn Codec<T> {
        let Some(as_dyn) = TypedCodec::as_dyn(T::DTYPE).downcast_ref::<AsDyn<T>>() else {
            unreachable!()
        };
        as_dyn(&self.codec)
    }

    /// [`Codec::n_values`] of a payload that is encoded by it, or of a raw one.
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

            /// The [`AsDyn`] of this type.
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
    /// The values themselves.
    Raw = 0, "raw", Properties {
        loss: Loss::None,
        is_free: true,
        is_homomorphic: true,
        is_in_place: true,
        types: SupportedTypes::All,
        ..BOUNDED
    };
    /// Quantise, 1-D Lorenzo, fixed-length blocks; reduces without decoding.
    FzLight = 1, "fz-light", Properties { is_homomorphic: true, types: SupportedTypes::Floats, ..BOUNDED };
    /// The same, added by unpacking and packing all blocks: hZCCL's baseline.
    FzStatic = 11, "fz-static", Self::FzLight.properties();
    /// The values of fz-light in fewer bytes, by prediction and Huffman codes; reduces without
    /// decoding to floats.
    Dense = 14, "dense", Properties { is_homomorphic: true, takes_shape: true, ..BOUNDED };
    /// The values of fz-light in its blocks, of what prediction in up to three dimensions leaves
    /// over; reduces without decoding to floats.
    FzNd = 15, "fz-nd", Self::Dense.properties();
    /// The low bits of each value dropped: as many as its setting says, by default half of them.
    Truncate = 2, "truncate", TRUNCATING;
    /// `f64` as `f32`.
    Demote = 3, "demote", Properties {
        loss: Loss::Setting,
        has_lattice: false,
        types: SupportedTypes::F64,
        ..BOUNDED
    };
    /// Each value XOR the one before, without its leading zero nibbles; exact.
    XorLz = 4, "xor-lz", Properties { loss: Loss::None, ..BOUNDED };
    /// Each value without its leading zero nibbles; exact. For differences that the caller takes
    /// ([`InterStep`](crate::InterStep)).
    Lz = 12, "lz", Properties { loss: Loss::None, ..BOUNDED };
    /// The low bits of each value dropped as by [`Truncate`](Self::Truncate), the others as by
    /// [`XorLz`](Self::XorLz).
    TruncateXor = 5, "truncate-xor", TRUNCATING;
    /// Residuals as bit planes without repeated words; exact. The setting is how many places back
    /// the value is that each is compared with: 1 by default, 64 at most.
    Mpc = 6, "mpc", Properties {
        loss: Loss::None,
        settings: [[1, super::mpc::MAX_DIM]; 2],
        ..BOUNDED
    };
    /// Of each chunk the shorter of the two before, by a sample; exact.
    Lossless = 13, "lossless", Properties { loss: Loss::None, ..BOUNDED };
    /// zfp with blocks of four values in as many bits each: the setting is bits a value, 8 by
    /// default.
    ZfpRate = 7, "zfp-rate", Properties {
        loss: Loss::Setting,
        is_stable: false,
        has_lattice: false,
        settings: [[8, 32], [8, 64]],
        ..BOUNDED
    };
    /// Blocks of 128 values as their middle, or as leading bits of what is left without it: SZx.
    Szx = 8, "szx", Properties { is_stable: false, has_lattice: false, ..BOUNDED };
    /// Quantise, differences and bit planes in blocks of 32 that do not depend on each other:
    /// ompSZp.
    OmpSzp = 9, "ompszp", BOUNDED;
    /// Quantise, and bit planes of codes or of differences in blocks of 32: cuSZp 2.
    CuSzp = 10, "cuszp", BOUNDED;
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
            // What every codec is for.
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
