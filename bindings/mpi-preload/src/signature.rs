//! Type signatures: what values a datatype is made of, whatever its handle and layout.
//!
//! MPI wants signatures equal between ranks, not datatypes: one may send a hundred floats as one
//! value of a type that another receives as a hundred.

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BaseType {
    /// 32-bit floating point, of C or Fortran.
    F32 = 1,
    /// 64-bit floating point.
    F64 = 2,
    /// Signed integers of 32 bits.
    I32 = 3,
    /// Signed integers of 64 bits.
    I64 = 4,
    /// Another type.
    Other = 5,
}

impl BaseType {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::F32, Self::F64, Self::I32, Self::I64, Self::Other];

    /// Whether codecs are for it.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Bytes of a value; `None`: that differs.
    #[must_use]
    pub const fn n_bytes(self) -> Option<usize> {
        match self {
            Self::F32 | Self::I32 => Some(4),
            Self::F64 | Self::I64 => Some(8),
            Self::Other => None,
        }
    }
}

/// Of one value of a datatype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What it is made of; `None`: of several kinds, or of nothing.
    pub base: Option<BaseType>,
    /// Bytes without gaps.
    pub n_bytes: usize,
    /// Whether memory has no gaps, and the values in their order.
    pub is_dense: bool,
    /// Whether the type is MPI's own, and none that the program has made.
    pub is_own: bool,
}

/// How MPI says that a datatype was made, of datatypes `D`.
#[derive(Clone, Debug)]
pub enum TypeConstructor<D> {
    /// It is MPI's own.
    Named,
    /// A copy.
    Dup(D),
    /// One after the other.
    Contiguous(D),
    /// Values of these, in a layout that is not looked at; those of which there are none left out.
    Of(Vec<D>),
}

/// What may be asked of datatypes.
pub trait Datatypes {
    /// A handle of one.
    type Datatype: Copy;
    /// Why it could not be asked.
    type Error;

    /// What MPI's own types of the ones we know are.
    fn base(&self, datatype: Self::Datatype) -> Option<BaseType>;
    /// Bytes of its values.
    ///
    /// # Errors
    /// What MPI says.
    fn n_bytes(&self, datatype: Self::Datatype) -> Result<usize, Self::Error>;
    /// How it was made. What it gives is freed by [`release`](Self::release).
    ///
    /// # Errors
    /// What MPI says.
    fn constructor(
        &self,
        datatype: Self::Datatype,
    ) -> Result<TypeConstructor<Self::Datatype>, Self::Error>;
    /// Gives back what `constructor` gave.
    fn release(&self, datatype: Self::Datatype);
}

impl Signature {
    /// Of a datatype.
    ///
    /// # Errors
    /// What MPI says.
    pub fn of<D: Datatypes>(types: &D, datatype: D::Datatype) -> Result<Self, D::Error> {
        let n_bytes = types.n_bytes(datatype)?;
        if let Some(base) = types.base(datatype) {
            return Ok(Self { base: Some(base), n_bytes, is_dense: true, is_own: true });
        }
        let (parts, keeps_dense) = match types.constructor(datatype)? {
            TypeConstructor::Named => {
                let base = Some(BaseType::Other);
                return Ok(Self { base, n_bytes, is_dense: false, is_own: true });
            }
            TypeConstructor::Dup(part) | TypeConstructor::Contiguous(part) => (vec![part], true),
            TypeConstructor::Of(parts) => (parts, false),
        };
        let mut whole = Self { base: None, n_bytes, is_dense: keeps_dense, is_own: false };
        let (mut bases, mut failed) = (Vec::new(), None);
        for part in parts {
            match Self::of(types, part) {
                Ok(part) => {
                    whole.is_dense &= part.is_dense;
                    if part.n_bytes > 0 {
                        bases.push(part.base);
                    }
                }
                Err(error) => failed = Some(error),
            }
            types.release(part);
        }
        if let [first, rest @ ..] = &bases[..]
            && rest.iter().all(|base| base == first)
            && n_bytes > 0
        {
            whole.base = *first;
        }
        failed.map_or(Ok(whole), Err)
    }

    /// As a number that fits beside a datatype; `None`: it is too long.
    #[must_use]
    pub fn to_number(self) -> Option<usize> {
        let code = self.base.map_or(0, |base| base as usize) << 1 | usize::from(self.is_dense);
        Some(self.n_bytes.checked_mul(32)? | usize::from(self.is_own) << 4 | code)
    }

    /// Of the number.
    #[must_use]
    pub fn from_number(number: usize) -> Self {
        let base = BaseType::ALL.into_iter().find(|&base| base as usize == number >> 1 & 7);
        Self { base, n_bytes: number >> 5, is_dense: number & 1 == 1, is_own: number & 16 != 0 }
    }
}
