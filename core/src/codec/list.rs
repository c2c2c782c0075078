//! The list of codecs: their names, wire codes and properties, and any of them behind one type.

use super::{Codec, FzLight, Raw};
use crate::bound::Quantum;
use crate::element::{DType, Element, Float};
use crate::kernel::Level;

/// What a codec is made from.
///
/// # Examples
/// ```
/// use foldwire::{Quantum, codec::{Codec, CodecId, CodecParams}};
///
/// let quantum = Quantum::new::<f32>(1e-3).expect("positive");
/// let codec = CodecId::FzLight.instance::<f32>(&CodecParams::new(quantum).for_sums_of(8));
/// assert_eq!(codec.as_dyn().id(), CodecId::FzLight);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CodecParams {
    pub(crate) quantum: Quantum,
    pub(crate) max_operands: u32,
    pub(crate) averages: bool,
    pub(crate) level: Level,
}

impl CodecParams {
    /// For single operands on this lattice, by the machine's best kernels.
    #[must_use]
    pub fn new(quantum: Quantum) -> Self {
        Self { quantum, max_operands: 1, averages: false, level: Level::best() }
    }

    /// For sums of at most so many operands: the group's size.
    #[must_use]
    pub const fn for_sums_of(self, n_operands: u32) -> Self {
        Self { max_operands: n_operands, averages: false, ..self }
    }

    /// For sums that are made to be divided by so many: own values then enter at a weight at which
    /// no sum of them overflows.
    #[must_use]
    pub const fn for_averages_of(self, n_operands: u32) -> Self {
        Self { max_operands: n_operands, averages: true, ..self }
    }

    /// By the kernels of one level (or the next lower that the machine has).
    #[must_use]
    pub const fn at(self, level: Level) -> Self {
        Self { level, ..self }
    }
}

macro_rules! codecs {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal, exact: $exact:literal, free: $free:literal, homomorphic: $homomorphic:literal, in_place: $in_place:literal;)*) => {
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

            /// Whether decoding gives back the bits that were encoded, whatever the bound.
            #[must_use]
            pub const fn is_exact(self) -> bool {
                match self {
                    $(Self::$variant => $exact,)*
                }
            }

            /// Whether encoding and decoding are copies: what was encoded once need not be kept.
            #[must_use]
            pub const fn is_free(self) -> bool {
                match self {
                    $(Self::$variant => $free,)*
                }
            }

            /// Whether [`Codec::homomorphic`] gives something.
            #[must_use]
            pub const fn is_homomorphic(self) -> bool {
                match self {
                    $(Self::$variant => $homomorphic,)*
                }
            }

            /// Whether it combines into a received frame itself: [`Codec::fold_in_place`] and
            /// [`Homomorphic::combine_in_place`] give something.
            #[must_use]
            pub const fn is_in_place(self) -> bool {
                match self {
                    $(Self::$variant => $in_place,)*
                }
            }

            /// Whether it codes values of this type: integers are for exact codecs.
            #[must_use]
            pub const fn is_for(self, dtype: DType) -> bool {
                self.is_exact() || dtype.is_float()
            }

            /// The codec with this wire code.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Makes the codec for one call; the raw one for types that this is not
            /// [for](Self::is_for).
            #[must_use]
            pub fn instance<T: Element>(self, params: &CodecParams) -> AnyCodec<T> {
                AnyCodec(T::codec(self, params))
            }
        }

        /// Any of the codecs of floats.
        #[doc(hidden)]
        #[derive(Clone, Copy, Debug)]
        pub enum Codecs<T: Float> {
            $($(#[$doc])* $variant($variant<T>),)*
        }

        impl<T: Float> Codecs<T> {
            pub(crate) fn new(id: CodecId, params: &CodecParams) -> Self {
                match id {
                    $(CodecId::$variant => Self::$variant($variant::from_params(params)),)*
                }
            }

            pub(crate) fn as_dyn(&self) -> &dyn Codec<T> {
                match self {
                    $(Self::$variant(codec) => codec,)*
                }
            }
        }
    };
}

/// Any codec of the type's, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct AnyCodec<T: Element>(T::Codecs);

impl<T: Element> AnyCodec<T> {
    /// The raw codec whose operands of averages enter by this weight, 1 for all else.
    pub(crate) fn raw(weight: T) -> Self {
        Self(T::raw(weight))
    }

    /// The codec behind its trait.
    #[must_use]
    pub fn as_dyn(&self) -> &dyn Codec<T> {
        T::erase(&self.0)
    }
}

codecs! {
    /// The values themselves.
    Raw = 0, "raw", exact: true, free: true, homomorphic: true, in_place: true;
    /// Quantise, 1-D Lorenzo, fixed-length blocks; reduces without decoding.
    FzLight = 1, "fz-light", exact: false, free: false, homomorphic: true, in_place: false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;

    #[test]
    fn the_list_says_of_each_codec_what_the_codec_says_of_itself() {
        let params = CodecParams::new(Quantum::new::<f32>(0.1).unwrap()).for_sums_of(2);
        for &id in CodecId::ALL {
            let codec = id.instance::<f32>(&params);
            assert_eq!(codec.as_dyn().id(), id);
            assert_eq!(CodecId::from_code(id as u8), Some(id));
            assert_eq!(
                codec.as_dyn().homomorphic().is_some(),
                id.is_homomorphic(),
                "{}",
                id.name()
            );
            let codec = codec.as_dyn();
            let in_place = codec.fold_in_place(&Op::Sum, &mut [], &[]).is_some();
            assert_eq!(in_place, id.is_in_place(), "{}", id.name());
            let in_place = codec
                .homomorphic()
                .map(|codec| codec.combine_in_place(&Op::Sum, &mut [], &[]).is_some());
            assert_eq!(in_place, id.is_homomorphic().then_some(id.is_in_place()), "{}", id.name());
        }
    }
}
